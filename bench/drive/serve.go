package drive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Settings are what a driver is started with.
type Settings struct {
	URL   string        // the service, through a meter
	Table string        // the table, the container or the prefix of the keys
	TTL   time.Duration // a third of it is the heartbeat
}

// The answers that are no failures.
var (
	ErrHeld        = errors.New("held")
	ErrUnsupported = errors.New("no")
)

// Client is a library as one process would use it.
type Client interface {
	Acquire(ctx context.Context, lock string) error
	Try(ctx context.Context, lock string) error
	Renew(ctx context.Context, lock string) error
	Release(ctx context.Context, lock string) error
	Deliver(ctx context.Context, job string, occurrence time.Time) error
}

// Library makes clients.
type Library interface {
	Open(ctx context.Context) (Client, error)
}

// Serve answers the lines of in until it ends. What is under way then is given up.
func Serve(ctx context.Context, library Library, version string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{library: library, out: out, clients: map[string]Client{}}
	s.say("ready %s", version)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 3 {
			return fmt.Errorf("the line %q asks for nothing", lines.Text())
		}
		c, err := s.client(ctx, words[2]) // in the order of the lines
		go s.do(ctx, c, err, words)
	}
	return lines.Err()
}

type server struct {
	library Library
	mu      sync.Mutex
	out     io.Writer
	clients map[string]Client
}

func (s *server) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = fmt.Fprintf(s.out, format+"\n", args...) // whoever asked has gone if it fails
}

func (s *server) client(ctx context.Context, name string) (Client, error) {
	if c := s.clients[name]; c != nil {
		return c, nil
	}
	c, err := s.library.Open(ctx)
	if err == nil {
		s.clients[name] = c
	}
	return c, err
}

func (s *server) do(ctx context.Context, c Client, err error, words []string) {
	began := time.Now()
	if err == nil {
		err = perform(ctx, c, words[1], append(words[3:], "", ""))
	}
	took := time.Since(began).Nanoseconds()
	switch {
	case err == nil:
		s.say("%s ok %d", words[0], took)
	case errors.Is(err, ErrHeld):
		s.say("%s held %d", words[0], took)
	case errors.Is(err, ErrUnsupported):
		s.say("%s no %d", words[0], took)
	default:
		s.say("%s error %d %s", words[0], took, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

func perform(ctx context.Context, c Client, op string, args []string) error {
	switch op {
	case "open":
		return nil
	case "acquire":
		return c.Acquire(ctx, args[0])
	case "try":
		return c.Try(ctx, args[0])
	case "renew":
		return c.Renew(ctx, args[0])
	case "release":
		return c.Release(ctx, args[0])
	case "deliver":
		at, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil {
			return err
		}
		return c.Deliver(ctx, args[0], time.Unix(at, 0))
	}
	return fmt.Errorf("there is no operation %q", op)
}

// held keeps what a client holds, by lock.
type held[T any] struct {
	mu  sync.Mutex
	all map[string]T
}

func (h *held[T]) put(lock string, v T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[string]T{}
	}
	h.all[lock] = v
}

func (h *held[T]) get(lock string) (T, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, ok := h.all[lock]
	if !ok {
		return v, fmt.Errorf("%s is not held", lock)
	}
	return v, nil
}

func (h *held[T]) take(lock string) (T, error) {
	v, err := h.get(lock)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, lock)
	return v, err
}
