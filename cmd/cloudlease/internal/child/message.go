package child

import "time"

// Argument is the first argument of a supervisor process. The program calls Supervise with the others when it sees it: the
// descriptors of its pipes, which are none that the wrapper's parent has given to the command.
const Argument = "supervise-a-command"

// order is what the wrapper tells the supervisor. One field is set.
type order struct {
	Start  *start `json:"start,omitempty"`
	Trust  *trust `json:"trust,omitempty"`
	Signal int    `json:"signal,omitempty"`
	Kill   bool   `json:"kill,omitempty"`
	Stop   bool   `json:"stop,omitempty"`   // as Ctrl-Z does: the wrapper stops
	Resume bool   `json:"resume,omitempty"` // the wrapper goes on after a stop
}

// start says what to run.
type start struct {
	Path  string        `json:"path"`
	Args  []string      `json:"args"`
	Env   []string      `json:"env"`
	Grace time.Duration `json:"grace"`
	Trust trust         `json:"trust"`
	Group int           `json:"group"` // the wrapper's, which is the shell's job
	// Job tells that the wrapper's parent controls it as a job: when it stops, somebody continues it.
	Job bool `json:"job"`
}

// trust says how long the command may run on, counted from At by either clock.
type trust struct {
	Left time.Duration `json:"left"`
	At   time.Time     `json:"at"` // the wrapper's wall clock, so that a late delivery counts
}

// news is what the supervisor tells the wrapper. One field is set.
type news struct {
	Started int    `json:"started,omitempty"` // the group
	Fault   *fault `json:"fault,omitempty"`
	Ended   *ended `json:"ended,omitempty"` // the leader; others of its group may run on
	Gone    *gone  `json:"gone,omitempty"`  // all of them
}

type fault struct {
	Errno int    `json:"errno"`
	Text  string `json:"text"`
}

type ended struct {
	Code int `json:"code"` // as a shell tells it: the status, or 128 and the signal
}

type gone struct {
	Why Why `json:"why"`
}
