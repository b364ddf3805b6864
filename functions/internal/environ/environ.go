// Package environ reads the settings of a function from its environment and reports all that is wrong with them at once, each
// by the name of its variable.
package environ

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Reader reads settings and gathers their faults. A setting that is wrong reads as its zero value or as it is; Err tells.
type Reader struct {
	getenv func(name string) string
	faults []error
}

// New makes a reader of an environment, such as os.Getenv.
func New(getenv func(name string) string) *Reader { return &Reader{getenv: getenv} }

// Get is a setting that may be missing.
func (r *Reader) Get(name string) string { return r.getenv(name) }

// Need is a setting that has to be there.
func (r *Reader) Need(name string) string {
	v := r.getenv(name)
	if v == "" {
		r.Fault(fmt.Errorf("the environment variable %s is missing", name))
	}
	return v
}

// Or is a setting, or otherwise where it is missing.
func (r *Reader) Or(name, otherwise string) string {
	if v := r.getenv(name); v != "" {
		return v
	}
	return otherwise
}

// Duration is a setting such as 30s, never negative; 0 where it is missing.
func (r *Reader) Duration(name string) time.Duration {
	d, err := time.ParseDuration(r.Or(name, "0s"))
	if err != nil || d < 0 {
		r.Wrong(name, "a duration such as 30s")
		return 0
	}
	return d
}

// OneOf is a setting that is one of two or more choices, the first where it is missing.
func (r *Reader) OneOf(name string, choices ...string) string {
	v := r.Or(name, choices[0])
	if !slices.Contains(choices, v) {
		r.Wrong(name, strings.Join(choices, " or "))
	}
	return v
}

// Wrong says that a setting is not what rule says it is.
func (r *Reader) Wrong(name, rule string) {
	r.Fault(fmt.Errorf("the environment variable %s is %.60q; it is %s", name, r.getenv(name), rule))
}

// Fault adds a fault; nil adds none.
func (r *Reader) Fault(err error) {
	if err != nil {
		r.faults = append(r.faults, err)
	}
}

// Err is all faults so far, nil if there are none.
func (r *Reader) Err() error { return errors.Join(r.faults...) }
