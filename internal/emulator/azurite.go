package emulator

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The account that every Azurite has. The key is public: it is printed in Azure's documentation.
const (
	AzuriteAccount = "devstoreaccount1"
	AzuriteKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// AzuriteOptions choose how Azurite runs. The zero value is an engine on a free port, over HTTP.
type AzuriteOptions struct {
	// Port is where to listen; 0: a free one.
	Port int
	// Certificate and Key are PEM files; with them Azurite serves HTTPS and also accepts bearer tokens, without checking who
	// signed them.
	Certificate, Key string
	// Log gets what Azurite prints; nil: nobody.
	Log io.Writer
}

// azuriteTimeout bounds the start of Azurite, which takes three seconds on an idle machine.
const azuriteTimeout = time.Minute

// StartAzurite starts Azurite's blob service, in memory, and returns when it answers. Its URL is that of the account. ctx bounds
// the start only. The process dies with this one.
func StartAzurite(ctx context.Context, o AzuriteOptions) (*Engine, error) {
	node, launcher, err := azuriteCommand()
	if err != nil {
		return nil, err
	}
	args := []string{launcher, "--parent", "--port", strconv.Itoa(o.Port)}
	if o.Certificate != "" {
		args = append(args, "--cert", o.Certificate, "--key", o.Key)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), node, args...)
	p, err := startProcess(cmd, o.Log)
	if err != nil {
		return nil, fmt.Errorf("start Azurite: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, azuriteTimeout)
	defer cancel()
	url, err := p.ready(ctx)
	if err == nil {
		url = strings.TrimSpace(url) + "/" + AzuriteAccount
		err = speaks(ctx, url)
	}
	if err != nil {
		_ = p.kill() // it may have ended already, which is what err says then
		return nil, fmt.Errorf("start Azurite: %w", err)
	}
	return p.engine(url), nil
}

// AzuriteConnection is a connection string for an Azurite, or anything that stands in for it, at url.
func AzuriteConnection(url string) string {
	scheme, _, _ := strings.Cut(url, ":")
	return fmt.Sprintf("DefaultEndpointsProtocol=%s;AccountName=%s;AccountKey=%s;BlobEndpoint=%s;", scheme, AzuriteAccount, AzuriteKey, url)
}

// azuriteCommand finds Node.js and the launcher, and says what to do where one is missing.
func azuriteCommand() (node, launcher string, err error) {
	dir, err := localstack()
	if err != nil {
		return "", "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "azurite", "package.json")); err != nil {
		return "", "", fmt.Errorf("azurite is not installed in %s: run `make setup`", dir)
	}
	node, err = exec.LookPath("node")
	if err != nil {
		return "", "", fmt.Errorf("azurite needs Node.js 20 or later: install it, then run `make setup`: %w", err)
	}
	return node, filepath.Join(dir, "azurite-server.cjs"), nil
}

// speaks makes one request, whose answer may be any: without credentials it is a refusal.
func speaks(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"?comp=list", http.NoBody)
	if err != nil {
		return err
	}
	req.Close = true
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it asks this machine whether anybody is there
	}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
