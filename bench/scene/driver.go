package scene

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// answer is a driver's answer.
type answer struct {
	ok   bool
	held bool
	took time.Duration // by the driver's clock
	at   time.Time     // when it was read
}

// errUnsupported: the library has no such operation.
var errUnsupported = errors.New("the library has no such operation")

// driver is a running driver. Its methods are safe for concurrent use.
type driver struct {
	name    string
	version string
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	gone    chan struct{} // closed when its output has ended
	stderr  tail

	mu      sync.Mutex
	next    int
	waiting map[string]chan string
}

// readyTimeout bounds the start of a driver; a JVM takes seconds on a busy machine.
const readyTimeout = time.Minute

func startDriver(ctx context.Context, name string, cmd *exec.Cmd) (*driver, error) {
	d := &driver{name: name, cmd: cmd, gone: make(chan struct{}), waiting: map[string]chan string{}}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	d.stdin, cmd.Stderr = stdin, &d.stderr
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the driver of %s: %w", name, err)
	}
	ready := make(chan string, 1)
	go d.read(stdout, ready)
	select {
	case d.version = <-ready:
		return d, nil
	case <-d.gone:
		err = fmt.Errorf("it ended at once: %s", d.stderr.String())
	case <-time.After(readyTimeout):
		err = errors.New("it is not ready")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	d.kill()
	return nil, fmt.Errorf("start the driver of %s: %w", name, err)
}

func (d *driver) read(out io.Reader, ready chan<- string) {
	defer close(d.gone)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		id, rest, _ := strings.Cut(lines.Text(), " ")
		if id == "ready" {
			ready <- rest
			continue
		}
		d.mu.Lock()
		c := d.waiting[id]
		delete(d.waiting, id)
		d.mu.Unlock()
		if c != nil {
			c <- rest
		}
	}
}

// do performs one operation and waits for its answer.
func (d *driver) do(ctx context.Context, op, client string, args ...string) (answer, error) {
	c := make(chan string, 1)
	d.mu.Lock()
	d.next++
	id := strconv.Itoa(d.next)
	d.waiting[id] = c
	_, err := fmt.Fprintf(d.stdin, "%s %s %s\n", id, op, strings.Join(append([]string{client}, args...), " "))
	d.mu.Unlock()
	if err != nil {
		return answer{}, fmt.Errorf("%s: %s: the driver is gone: %s", d.name, op, d.stderr.String())
	}
	select {
	case rest := <-c:
		return d.parse(op, rest)
	case <-d.gone:
		return answer{}, fmt.Errorf("%s: %s: the driver ended: %s", d.name, op, d.stderr.String())
	case <-ctx.Done():
		return answer{}, fmt.Errorf("%s: %s: %w", d.name, op, context.Cause(ctx))
	}
}

func (d *driver) parse(op, rest string) (answer, error) {
	a := answer{at: time.Now()}
	words := strings.SplitN(rest, " ", 3)
	if len(words) < 2 {
		return a, fmt.Errorf("%s: %s: the driver says %q", d.name, op, rest)
	}
	ns, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil {
		return a, fmt.Errorf("%s: %s: the driver says %q", d.name, op, rest)
	}
	a.took = time.Duration(ns)
	switch words[0] {
	case "ok":
		a.ok = true
	case "held":
		a.held = true
	case "no":
		return a, errUnsupported
	default:
		return a, fmt.Errorf("%s: %s: %s", d.name, op, strings.Join(words[2:], " "))
	}
	return a, nil
}

// must is do for an operation that has to be granted.
func (d *driver) must(ctx context.Context, op, client string, args ...string) (answer, error) {
	a, err := d.do(ctx, op, client, args...)
	if err == nil && !a.ok {
		err = fmt.Errorf("%s: %s %s: held, which it should not be", d.name, op, strings.Join(args, " "))
	}
	return a, err
}

// grab acquires a lock that is free, by whatever the library has.
func (d *driver) grab(ctx context.Context, client, lock string) (answer, error) {
	a, err := d.must(ctx, "acquire", client, lock)
	if errors.Is(err, errUnsupported) {
		return d.must(ctx, "try", client, lock)
	}
	return a, err
}

// kill ends the driver as a crash would.
func (d *driver) kill() {
	_ = d.cmd.Process.Kill() // it may have ended already
	<-d.gone
	_ = d.cmd.Wait() // a killed process is an error here
}

// usage is the processor time and the memory of the driver so far (Linux only; elsewhere zero).
func (d *driver) usage() (cpu time.Duration, resident float64) {
	const hz = 100 // USER_HZ, the same on every Linux that Go runs on
	proc := fmt.Sprintf("/proc/%d/", d.cmd.Process.Pid)
	stat, err := os.ReadFile(proc + "stat")
	if err != nil {
		return 0, 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	pages, _ := strconv.Atoi(fields[21])
	return time.Duration(user+system) * time.Second / hz, float64(pages*os.Getpagesize()) / (1 << 20)
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	t.b = t.b[max(0, len(t.b)-500):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.b))
}
