//go:build linux

package main_test

import (
	"encoding/json"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/cloudlease/cloudlease/internal/emulator"
)

// composition is the part of compose.yaml that has to agree with the launcher.
type composition struct {
	Services map[string]struct {
		Image   string
		Command []string
		Ports   []string
		Volumes []string
	}
}

func compose(t *testing.T) composition {
	t.Helper()
	text, err := os.ReadFile("../compose.yaml")
	require.NoError(t, err)
	var c composition
	require.NoError(t, yaml.Unmarshal(text, &c))
	return c
}

// TestComposeVersions: Docker brings the versions that the manifests pin, and none of LocalStack that needs a token.
func TestComposeVersions(t *testing.T) {
	var npm struct{ Dependencies map[string]string }
	text, err := os.ReadFile("../package.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &npm))
	images := map[string]string{}
	for name, s := range compose(t).Services {
		images[name] = s.Image
	}
	require.Equal(t, map[string]string{
		"localstack": "localstack/localstack:4.14.0",
		"azurite":    "mcr.microsoft.com/azure-storage/azurite:" + npm.Dependencies["azurite"],
		"consul":     "hashicorp/consul:" + emulator.ConsulVersion,
	}, images)
}

// TestComposePorts: whatever the launcher's endpoints name is published, on the loopback address, and nothing else.
func TestComposePorts(t *testing.T) {
	published := map[string]bool{}
	for name, s := range compose(t).Services {
		for _, p := range s.Ports {
			require.Regexp(t, regexp.MustCompile(`^127\.0\.0\.1:\d+:\d+$`), p, name)
			published[p[:strings.LastIndex(p, ":")]] = true
		}
	}
	out, err := build(t).run(t, "endpoints")
	require.NoError(t, err)
	named := map[string]bool{}
	for _, at := range regexp.MustCompile(`127\.0\.0\.1:\d+`).FindAllString(out, -1) {
		named[at] = true
	}
	require.Len(t, named, 4)
	require.Equal(t, named, published)
	for at := range named {
		_, _, err := net.SplitHostPort(at)
		require.NoError(t, err)
	}
}

// TestComposeMounts: what is mounted from this checkout is there, but for what make build makes.
func TestComposeMounts(t *testing.T) {
	mounted := 0
	for _, v := range compose(t).Services["localstack"].Volumes {
		host, _, _ := strings.Cut(v, ":")
		if strings.HasPrefix(host, ".") && host != "../dist" {
			_, err := os.Stat("../" + host)
			require.NoError(t, err)
			mounted++
		}
	}
	require.Equal(t, 2, mounted)
	hook, err := os.Stat("../ready.sh")
	require.NoError(t, err)
	require.NotZero(t, hook.Mode()&0o111, "LocalStack runs executable scripts only")
}
