//go:build unix

// Package history is what the processes of a campaign write down, so that it can be checked afterwards.
//
// Every process appends to a file of its own, one JSON object a line, each in a single write: what a killed process had
// written is there. Instants are CLOCK_MONOTONIC, which all processes of one machine share and nobody sets, so that they can be
// compared across processes, whatever the processes themselves believe to be the time.
package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since an arbitrary start that is the same for all processes of this machine.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Sprintf("read CLOCK_MONOTONIC: %v", err)) // the kernel has it since it has threads
	}
	return time.Duration(ts.Nano())
}

// Kind says what happened.
type Kind string

// The kinds of events.
const (
	Started  Kind = "started"   // a process began its life; Value: its id
	Stopped  Kind = "stopped"   // it ended in good order; Err: what it left behind
	Stalled  Kind = "stalled"   // it did not run from At until Until, for want of a processor or because it was stopped
	Waiting  Kind = "waiting"   // it began to ask for Lock
	GaveUp   Kind = "gave up"   // it stopped to ask; Err says why, and Outcome Unknown that it may have got it all the same
	Granted  Kind = "granted"   // Lock is its own; Sent and Until as it believes
	Renewed  Kind = "renewed"   // like Granted
	Acted    Kind = "acted"     // At that instant it trusted its lease
	Ended    Kind = "ended"     // at that instant it did not trust its lease any more
	Leaving  Kind = "leaving"   // it is about to release its lease and does not trust it any more
	Released Kind = "released"  // Err: the release failed
	PutCall  Kind = "put"       // a guarded write was sent
	PutBack  Kind = "put back"  // Outcome says what became of it
	GetCall  Kind = "get"       // a guarded read was sent
	GetBack  Kind = "get back"  // Value, Token and Holder are what was read
	Obstacle Kind = "obstacle"  // from At until Until a fault stood in the way of Worker (empty: of all)
	Finding  Kind = "violation" // a process saw something that must not be; Err says what
)

// Outcome of a guarded operation, as its caller was told.
type Outcome string

// The outcomes.
const (
	Done    Outcome = "done"
	Refused Outcome = "refused" // by the fence
	Unknown Outcome = "unknown" // it may be done, or be done later
	Nothing Outcome = "nothing" // certainly not done
)

// Event is something that happened.
type Event struct {
	At      time.Duration `json:"at"`
	Kind    Kind          `json:"kind"`
	Worker  string        `json:"worker,omitempty"`
	Life    int           `json:"life,omitempty"` // counts the processes of one worker
	Lock    string        `json:"lock,omitempty"`
	Token   uint64        `json:"token,omitempty"`
	Holder  string        `json:"holder,omitempty"`
	Sent    time.Duration `json:"sent,omitempty"`  // when the last good request for the lease was sent
	Until   time.Duration `json:"until,omitempty"` // end of trust, or of a stall or an obstacle
	Op      int           `json:"op,omitempty"`    // pairs the call of a guarded operation with its return
	Value   string        `json:"value,omitempty"`
	Outcome Outcome       `json:"outcome,omitempty"`
	Fault   string        `json:"fault,omitempty"` // of an obstacle
	Err     string        `json:"err,omitempty"`
}

// Writer appends events. It is safe for concurrent use.
type Writer struct {
	mu     sync.Mutex
	out    io.Writer
	worker string
	life   int
	err    error
}

// NewWriter writes events of one life of a worker to out.
func NewWriter(out io.Writer, worker string, life int) *Writer {
	return &Writer{out: out, worker: worker, life: life}
}

// Add appends e. An At of 0 is the present.
func (w *Writer) Add(e Event) {
	if e.At == 0 {
		e.At = Now()
	}
	if e.Worker == "" {
		e.Worker, e.Life = w.worker, w.life
	}
	line, err := json.Marshal(e)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		_, err = w.out.Write(append(line, '\n'))
	}
	w.err = errors.Join(w.err, err)
}

// Err is what kept events from being written.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Read reads the events of files. A last line that breaks off is the end of a killed process's file.
func Read(files ...string) ([]Event, error) {
	var all []Event
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		events, err := Decode(bytes.NewReader(content))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, events...)
	}
	return all, nil
}

// Decode reads events.
func Decode(r io.Reader) ([]Event, error) {
	var events []Event
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, err
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		events = append(events, e)
	}
}
