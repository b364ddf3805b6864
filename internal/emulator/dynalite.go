package emulator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options choose how dynalite runs. The zero value is an engine in memory on a free port.
type Options struct {
	// DataDir keeps the tables in this directory, where they survive Close; empty: in memory. One engine at a time.
	DataDir string
	// Port is where to listen, so that an engine can come back at the address it had; 0: a free one.
	Port int
	// Log gets what dynalite prints; nil: nobody.
	Log io.Writer
}

// startTimeout bounds the start of dynalite, which takes half a second on an idle machine.
const startTimeout = 30 * time.Second

// StartDynalite starts dynalite and returns when it answers. ctx bounds the start only. The process dies with this one.
func StartDynalite(ctx context.Context, o Options) (*Engine, error) {
	node, launcher, err := dynaliteCommand()
	if err != nil {
		return nil, err
	}
	args := []string{launcher, "--parent", "--port", strconv.Itoa(o.Port)}
	if o.DataDir != "" {
		args = append(args, "--path", o.DataDir)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), node, args...)
	p, err := startProcess(cmd, o.Log)
	if err != nil {
		return nil, fmt.Errorf("start dynalite: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	url, err := p.ready(ctx)
	if err == nil {
		err = answers(ctx, url)
	}
	if err != nil {
		_ = p.kill() // it may have ended already, which is what err says then
		return nil, fmt.Errorf("start dynalite: %w", err)
	}
	return p.engine(url), nil
}

// dynaliteCommand finds Node.js and the launcher, and says what to do where one is missing.
func dynaliteCommand() (node, launcher string, err error) {
	dir, err := localstack()
	if err != nil {
		return "", "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "dynalite", "package.json")); err != nil {
		return "", "", fmt.Errorf("dynalite is not installed in %s: run `make setup`", dir)
	}
	node, err = exec.LookPath("node")
	if err != nil {
		return "", "", fmt.Errorf("dynalite needs Node.js 20 or later: install it, then run `make setup`: %w", err)
	}
	return node, filepath.Join(dir, "dynalite-server.cjs"), nil
}

// localstack is the directory of that name: beside this source file, or where that path was trimmed away, in the
// working directory or above it.
func localstack() (string, error) {
	var roots []string
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		roots = append(roots, filepath.Dir(filepath.Dir(filepath.Dir(file))))
	}
	if wd, err := os.Getwd(); err == nil {
		for ; ; wd = filepath.Dir(wd) {
			roots = append(roots, wd)
			if wd == filepath.Dir(wd) {
				break
			}
		}
	}
	for _, root := range roots {
		dir := filepath.Join(root, "localstack")
		if _, err := os.Stat(filepath.Join(dir, "dynalite-server.cjs")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("localstack/dynalite-server.cjs not found: run inside a checkout of cloudlease")
}

// answers makes one request, because a listening socket alone does not show that the engine works.
func answers(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}

// process is a started engine process.
type process struct {
	cmd    *exec.Cmd
	out    *firstLine
	stderr tail          // to be read after exited
	exited chan struct{} // closed when the process is gone and its output is read
}

func startProcess(cmd *exec.Cmd, log io.Writer) (*process, error) {
	if log == nil {
		log = io.Discard
	}
	p := &process{cmd: cmd, out: &firstLine{found: make(chan string, 1)}, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = io.MultiWriter(p.out, log), io.MultiWriter(&p.stderr, log)
	dieWithParent(cmd)
	// The launcher ends when its standard input does: also where the kernel cannot kill it together with its parent.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, stdin.Close())
	}
	go func() {
		defer close(p.exited)
		_ = cmd.Wait() // a killed process is an error here; what it said is in stderr
	}()
	return p, nil
}

// engine is the process as its users see it.
func (p *process) engine(url string) *Engine {
	return &Engine{URL: url, close: sync.OnceValue(p.kill), exited: p.exited}
}

// ready waits for the line that says where the process listens.
func (p *process) ready(ctx context.Context) (url string, err error) {
	select {
	case line := <-p.out.found:
		_, url, ok := strings.Cut(line, " on ")
		if !ok {
			return "", fmt.Errorf("it says %q instead of its address", line)
		}
		return url, nil
	case <-p.exited:
		return "", fmt.Errorf("it ended at once (%v): %s", p.cmd.ProcessState, strings.TrimSpace(p.stderr.String()))
	case <-ctx.Done():
		return "", fmt.Errorf("it is not ready: %w", context.Cause(ctx))
	}
}

// kill ends the process without a farewell and waits until it is gone. A process that had ended by itself is an error.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	<-p.exited
	if err != nil {
		return fmt.Errorf("it had ended before it was closed (%v): %s", p.cmd.ProcessState, strings.TrimSpace(p.stderr.String()))
	}
	return nil
}

// tail keeps the end of what is written to it: an engine that runs for days prints more than anybody reads.
type tail struct{ b []byte }

// tailSize is how much of it, in bytes.
const tailSize = 16 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.b = append(t.b, b[max(0, len(b)-tailSize):]...)
	t.b = t.b[max(0, len(t.b)-tailSize):]
	return len(b), nil
}

func (t *tail) String() string { return string(t.b) }

// firstLine passes the first line that is written to it on, and drops the rest.
type firstLine struct {
	line  []byte
	found chan string // of capacity 1
	done  bool
}

func (f *firstLine) Write(b []byte) (int, error) {
	if f.done {
		return len(b), nil
	}
	line, _, ended := bytes.Cut(b, []byte("\n"))
	f.line = append(f.line, line...)
	if ended {
		f.found <- string(f.line)
		f.done = true
	}
	return len(b), nil
}
