package emulator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// PostgresVariable is the environment variable that names the directory of initdb and postgres where they are neither in
// PATH nor where Debian puts them.
const PostgresVariable = "CLOUDLEASE_POSTGRES"

const (
	postgresUser = "postgres" // the cluster's superuser, and the user of the machine that the server prefers to run as
	postgresStop = 10 * time.Second
	portTries    = 3
)

// StartPostgres starts a PostgreSQL server with an empty cluster of its own and returns when it takes connections; its URL is
// a connection string. ctx bounds the start only. The server keeps nothing over a crash (no fsync), trusts everybody on the
// loopback address and listens nowhere else. It refuses to run as root, so that root's runs as the user postgres, or nobody.
func StartPostgres(ctx context.Context) (*Engine, error) {
	bin, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c := &cluster{bin: bin}
	if err := c.create(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("make a PostgreSQL cluster: %w", err), c.remove())
	}
	url, err := c.serve(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start PostgreSQL: %w", err), c.remove())
	}
	return &Engine{URL: url, close: sync.OnceValue(func() error { return errors.Join(c.stop(), c.remove()) })}, nil
}

// postgresPrograms is the directory of initdb and postgres.
func postgresPrograms() (string, error) {
	places := filepath.SplitList(os.Getenv("PATH"))
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is well-formed
	slices.Sort(debian)
	slices.Reverse(debian) // the newest first
	places = append(places, debian...)
	if only := os.Getenv(PostgresVariable); only != "" {
		places = []string{only}
	}
	for _, dir := range places {
		_, noServer := exec.LookPath(filepath.Join(dir, "postgres"))
		_, noInit := exec.LookPath(filepath.Join(dir, "initdb"))
		if noServer == nil && noInit == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("PostgreSQL is not installed: install the Debian package postgresql, or name the directory of "+
		"initdb and postgres in %s", PostgresVariable)
}

// cluster is the directory of a server, and the server while it runs.
type cluster struct {
	bin, dir string
	uid, gid int // whose the directory is and whom the programs run as; negative: this process's
	cmd      *exec.Cmd
	log      bytes.Buffer  // to be read after exited
	exited   chan struct{} // closed when the server and all its children are gone
}

func (c *cluster) data() string { return filepath.Join(c.dir, "data") }

// create makes the directory and an empty cluster in it.
func (c *cluster) create(ctx context.Context) error {
	var err error
	if c.uid, c.gid, err = postgresOwner(); err != nil {
		return err
	}
	if c.dir, err = os.MkdirTemp("", "cloudlease-postgres-"); err != nil {
		return err
	}
	if c.uid >= 0 {
		if err := os.Chown(c.dir, c.uid, c.gid); err != nil {
			return err
		}
	}
	cmd := c.command(ctx, "initdb", "-D", c.data(), "-U", postgresUser, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// postgresOwner is whom the server runs as.
func postgresOwner() (uid, gid int, err error) {
	if os.Getuid() != 0 {
		return -1, -1, nil
	}
	u, err := user.Lookup(postgresUser)
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return 0, 0, fmt.Errorf("PostgreSQL does not run as root, and there is no other user: %w", err)
	}
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	return uid, gid, errors.Join(uidErr, gidErr)
}

// command is one of the server's programs.
func (c *cluster) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, program), args...)
	cmd.Dir = c.dir // this process's may be closed to the server's user
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	dieWithParentAs(cmd, c.uid, c.gid)
	return cmd
}

// serve starts the server. PostgreSQL cannot choose a port, so that a free one is chosen for it, and another if somebody
// else was faster to take it.
func (c *cluster) serve(ctx context.Context) (url string, err error) {
	for range portTries {
		port, err := freePort()
		if err != nil {
			return "", err
		}
		if err = c.serveOn(ctx, port); err == nil {
			return fmt.Sprintf("postgres://%s@127.0.0.1:%s/postgres?sslmode=disable", postgresUser, port), nil
		}
		if !strings.Contains(err.Error(), "Address already in use") {
			return "", err
		}
	}
	return "", fmt.Errorf("no free port in %d tries", portTries)
}

func freePort() (string, error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

func (c *cluster) serveOn(ctx context.Context, port string) error {
	c.cmd = c.command(context.WithoutCancel(ctx), "postgres", "-D", c.data(), "-p", port,
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "full_page_writes=off",
		"-c", "max_connections=200")
	c.log.Reset()
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	if err := c.cmd.Start(); err != nil {
		c.cmd = nil
		return err
	}
	c.exited = make(chan struct{})
	go func() {
		defer close(c.exited)
		_ = c.cmd.Wait() // what it said is in log
	}()
	for {
		select {
		case <-c.exited:
			return fmt.Errorf("it ended at once (%v): %s", c.cmd.ProcessState, bytes.TrimSpace(c.log.Bytes()))
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("it is not ready: %w", context.Cause(ctx)), c.stop())
		case <-time.After(10 * time.Millisecond):
			if c.ready() {
				return nil
			}
		}
	}
}

// ready looks into the file in which the server tells its state. A connection would not tell whose server answers.
func (c *cluster) ready() bool {
	state, err := os.ReadFile(filepath.Join(c.data(), "postmaster.pid"))
	if err != nil {
		return false // not written yet
	}
	lines := strings.Split(string(state), "\n")
	return len(lines) > 7 && strings.TrimSpace(lines[7]) == "ready"
}

// stop ends the server without a farewell to its clients, as a crash would. SIGQUIT lets it take its children and its shared
// memory with it; a server that does not is killed.
func (c *cluster) stop() error {
	err := c.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-c.exited:
	case <-time.After(postgresStop):
		err = errors.Join(errors.New("PostgreSQL had to be killed"), c.cmd.Process.Kill())
		<-c.exited
	}
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("PostgreSQL had ended before it was closed (%v): %s", c.cmd.ProcessState, bytes.TrimSpace(c.log.Bytes()))
	}
	return err
}

// remove removes the directory. The children of a killed server may write for another moment.
func (c *cluster) remove() error {
	if c.dir == "" {
		return nil
	}
	err := os.RemoveAll(c.dir)
	for range 100 {
		if err == nil || errors.Is(err, fs.ErrPermission) {
			break
		}
		time.Sleep(20 * time.Millisecond)
		err = os.RemoveAll(c.dir)
	}
	return err
}
