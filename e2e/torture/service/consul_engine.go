//go:build unix

package service

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/cloudlease/cloudlease/internal/emulator"
)

// Start implements Service: one server. One that comes back gets the ports that it had, because it remembers its peers, itself
// among them, by address; they are kept beside dir.
func (Consul) Start(ctx context.Context, dir string, _ int) (*Engine, error) {
	ports, err := consulPorts(dir + ".ports")
	if err != nil {
		return nil, err
	}
	e, err := emulator.StartConsul(ctx, emulator.ConsulOptions{Node: "torture", DataDir: dir, Ports: ports})
	if err != nil {
		return nil, err
	}
	return &Engine{URL: e.URL, Kill: e.Close}, nil
}

func consulPorts(kept string) (ports emulator.ConsulPorts, err error) {
	text, err := os.ReadFile(kept)
	if err == nil {
		return ports, json.Unmarshal(text, &ports)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return ports, err
	}
	if ports, err = emulator.FreeConsulPorts(); err != nil {
		return ports, err
	}
	if text, err = json.Marshal(ports); err != nil {
		return ports, err
	}
	return ports, os.WriteFile(kept, text, 0o600)
}
