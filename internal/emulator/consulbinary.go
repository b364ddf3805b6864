package emulator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// ConsulVariable is the environment variable that names a consul program to use instead of the one that is built.
const ConsulVariable = "CLOUDLEASE_CONSUL"

// ConsulVersion is the version that is built: the last but one under the Mozilla Public License, whose modules resolve by
// themselves. It is the one that localstack/consul/go.mod names.
const ConsulVersion = "1.14.11"

// ConsulBinary is the path of the consul program: that of ConsulVariable, or else one in the user's cache directory, which is
// built from source the first time. That takes six minutes on two cores and 113 MB; what happens is said on the standard error
// output. Several processes that want it at once build it once.
func ConsulBinary(ctx context.Context) (string, error) {
	if path := os.Getenv(ConsulVariable); path != "" {
		if _, err := exec.LookPath(path); err != nil {
			return "", fmt.Errorf("%s is set to a program that does not run: %w", ConsulVariable, err)
		}
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for consul: %w; or set %s", err, ConsulVariable)
	}
	path := filepath.Join(cache, "cloudlease", "consul-"+ConsulVersion)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return "", err
	}
	unlock, err := lockFile(path + ".lock")
	if err != nil {
		return "", fmt.Errorf("wait for another build of consul: %w", err)
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil { // built meanwhile
		return path, nil
	}
	return path, buildConsul(ctx, path)
}

// buildConsul builds the pinned version into path, all or nothing.
func buildConsul(ctx context.Context, path string) error {
	dir, err := localstack()
	if err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Fprintf(os.Stderr, "cloudlease: "+format+"\n", args...) }
	say("building consul %s, once, into %s: about six minutes", ConsulVersion, path)
	began := time.Now()
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(time.Minute)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				say("still building consul, for %v", time.Since(began).Round(time.Second))
			case <-done:
				return
			}
		}
	}()
	part := fmt.Sprintf("%s.%d", path, os.Getpid())
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", part, "github.com/hashicorp/consul")
	cmd.Dir = filepath.Join(dir, "consul")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off", "GOOS=", "GOARCH=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("build consul %s in %s: %w: %s", ConsulVersion, cmd.Dir, err, lastLines(string(out))), os.RemoveAll(part))
	}
	if err := os.Rename(part, path); err != nil {
		return err
	}
	say("built consul %s in %v", ConsulVersion, time.Since(began).Round(time.Second))
	return nil
}

func lastLines(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
