package emulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ConsulOptions choose how a Consul agent runs. The zero value is a server of its own, in memory, on free ports.
type ConsulOptions struct {
	Node    string // default a name of its own
	DataDir string // keeps the state over a crash; empty: in memory
	// Ports are where to listen, so that an agent can come back where it was. The zero value: free ones.
	Ports ConsulPorts
	// Servers is how many servers the cluster has; 0: this one alone, which needs no other. They have data directories.
	Servers int
	// Client makes an agent that is no server.
	Client bool
	// Join are the agents to find the cluster by.
	Join []ConsulPorts
	// MinTTL is session_ttl_min; 0: one second, so that tests need not wait.
	MinTTL time.Duration
	// RootToken turns the ACLs on, with everything denied to all but this token.
	RootToken string
	// Log gets what the agent prints; nil: nobody.
	Log io.Writer
}

// ConsulPorts are the ports of one agent, all on the loopback address.
type ConsulPorts struct{ HTTP, Server, Serf int }

// URL is where the agent's HTTP API is.
func (p ConsulPorts) URL() string { return "http://127.0.0.1:" + strconv.Itoa(p.HTTP) }

// FreeConsulPorts finds ports for one agent. Another process may take one before the agent does.
func FreeConsulPorts() (ConsulPorts, error) {
	var ports [3]int
	for i := range ports {
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return ConsulPorts{}, fmt.Errorf("find a free port: %w", err)
		}
		defer func() { _ = l.Close() }()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ConsulPorts{ports[0], ports[1], ports[2]}, nil
}

// consulTimeout bounds the start of an agent, which takes half a second on an idle machine; an election takes longer.
const consulTimeout = time.Minute

// StartConsul starts an agent and returns when it answers: a server that needs no other when it can make sessions, another as soon
// as it listens. ctx bounds the start only. The process dies with this one.
func StartConsul(ctx context.Context, o ConsulOptions) (*Engine, error) {
	binary, err := ConsulBinary(ctx)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		e, err := startConsul(ctx, binary, o)
		if err == nil || try == portTries || o.Ports != (ConsulPorts{}) || ctx.Err() != nil {
			return e, err
		}
	}
}

func startConsul(ctx context.Context, binary string, o ConsulOptions) (*Engine, error) {
	if o.Ports == (ConsulPorts{}) {
		var err error
		if o.Ports, err = FreeConsulPorts(); err != nil {
			return nil, err
		}
	}
	args, err := o.args()
	if err != nil {
		return nil, err
	}
	p, err := startProcess(exec.CommandContext(context.WithoutCancel(ctx), binary, args...), o.Log)
	if err != nil {
		return nil, fmt.Errorf("start Consul: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, consulTimeout)
	defer cancel()
	if err := p.consulReady(ctx, o); err != nil {
		_ = p.kill() // it may have ended already, which is what err says then
		return nil, fmt.Errorf("start Consul: %w", err)
	}
	return p.engine(o.Ports.URL()), nil
}

// args are the agent's arguments. Everything that listens elsewhere or asks the world is off.
func (o ConsulOptions) args() ([]string, error) {
	if o.Node == "" {
		o.Node = "node-" + strconv.Itoa(o.Ports.HTTP)
	}
	if o.MinTTL == 0 {
		o.MinTTL = time.Second
	}
	config := map[string]any{
		"ports": map[string]int{
			"http": o.Ports.HTTP, "server": o.Ports.Server, "serf_lan": o.Ports.Serf, "dns": -1, "grpc": -1, "grpc_tls": -1, "https": -1, "serf_wan": -1,
		},
		"disable_update_check": true, "session_ttl_min": o.MinTTL.String(), "limits": map[string]int{"http_max_conns_per_client": 2000},
		"performance": map[string]int{"raft_multiplier": 1},
	}
	if o.RootToken != "" {
		config["acl"] = map[string]any{
			"enabled": true, "default_policy": "deny", "tokens": map[string]string{"initial_management": o.RootToken, "agent": o.RootToken},
		}
	}
	if o.DataDir != "" {
		config["data_dir"] = o.DataDir
	}
	if len(o.Join) > 0 {
		join := []string{}
		for _, p := range o.Join {
			join = append(join, "127.0.0.1:"+strconv.Itoa(p.Serf))
		}
		config["retry_join"], config["retry_interval"] = join, "500ms"
	}
	args := []string{"agent", "-bind=127.0.0.1", "-client=127.0.0.1", "-node=" + o.Node, "-log-level=warn", "-disable-host-node-id"}
	switch {
	case o.Client:
		config["leave_on_terminate"] = false
	case o.Servers > 1:
		config["server"], config["bootstrap_expect"] = true, o.Servers
	case o.DataDir != "":
		config["server"], config["bootstrap_expect"] = true, 1
	default:
		args = append(args, "-dev")
	}
	hcl, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	return append(args, "-hcl", string(hcl)), nil
}

// consulReady waits until the agent does what it was started for.
func (p *process) consulReady(ctx context.Context, o ConsulOptions) error {
	var err error
	for {
		if o.Client || o.Servers > 1 {
			err = ConsulCall(ctx, o.Ports, o.RootToken, http.MethodGet, "/v1/agent/self", "", nil)
		} else {
			err = consulLives(ctx, o.Ports, o.RootToken)
		}
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("it ended at once (%v): %s", p.cmd.ProcessState, strings.TrimSpace(p.stderr.String()))
		case <-ctx.Done():
			return fmt.Errorf("it is not ready: %w; the last answer: %w", context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// consulLives makes a session and destroys it: only then has a server a leader and registered itself.
func consulLives(ctx context.Context, p ConsulPorts, token string) error {
	var made struct{ ID string }
	if err := ConsulCall(ctx, p, token, http.MethodPut, "/v1/session/create", `{"NodeChecks": []}`, &made); err != nil {
		return err
	}
	return ConsulCall(ctx, p, token, http.MethodPut, "/v1/session/destroy/"+made.ID, "", nil)
}

// AwaitConsul waits until an agent's cluster has a leader that makes sessions.
func AwaitConsul(ctx context.Context, p ConsulPorts, token string) error {
	ctx, cancel := context.WithTimeout(ctx, consulTimeout)
	defer cancel()
	for {
		err := consulLives(ctx, p, token)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ConsulCall makes one request of an agent's API and reads its answer into out, which may be nil.
func ConsulCall(ctx context.Context, p ConsulPorts, token, method, path, body string, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, p.URL()+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Close = true
	if token != "" {
		req.Header.Set("X-Consul-Token", token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if !slices.Contains([]int{http.StatusOK, http.StatusNoContent}, resp.StatusCode) {
		return fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}
