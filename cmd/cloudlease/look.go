package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudlease/cloudlease/cmd/cloudlease/internal/render"
	"github.com/cloudlease/cloudlease/lease"
)

// shown is a lock as JSON tells it. Times are the service's, in UTC.
type shown struct {
	Name    string       `json:"name"`
	State   lease.State  `json:"state"`
	Token   lease.Token  `json:"token,omitempty"`
	Holder  string       `json:"holder,omitempty"`
	Since   *string      `json:"since,omitempty"`
	Expires *string      `json:"expires,omitempty"`
	Job     *shownJob    `json:"job,omitempty"`
	Broken  *shownBroken `json:"broken,omitempty"`
}

// shownJob are the occurrences of a scheduled job.
type shownJob struct {
	Running  *string `json:"running,omitempty"`
	Started  *string `json:"started,omitempty"`
	Finished *string `json:"finished,omitempty"`
}

// shownBroken is the last forced release.
type shownBroken struct {
	By    string      `json:"by"`
	Why   string      `json:"why,omitempty"`
	Token lease.Token `json:"token"`
	At    *string     `json:"at,omitempty"`
}

func show(i lease.Info) shown {
	s := shown{Name: i.Name, State: i.State, Token: i.Token}
	if i.State == lease.Held || i.State == lease.Dead {
		s.Holder, s.Since, s.Expires = i.Holder, render.Stamp(i.Since), render.Stamp(i.Expires)
	}
	if m := i.Marks; m != (lease.Marks{}) {
		s.Job = &shownJob{Running: occurrence(m.Running), Started: occurrence(m.Started), Finished: occurrence(m.Finished)}
	}
	if b := i.Broken; b != nil {
		s.Broken = &shownBroken{By: b.By, Why: b.Why, Token: b.Token, At: render.Stamp(b.At)}
	}
	return s
}

func occurrence(unix int64) *string { return render.Stamp(time.Unix(unix, 0)) }

func or(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status NAME", Short: "Show one lock: who holds it, since when, with which token",
		Long: `Show one lock as the service has it now, with one request. Times are the service's.

  absent   was never taken, or its record was deleted
  free     was given back
  held     somebody has it
  dead     its holder's lease has ended: the next attempt takes it

For a scheduled job it also shows which occurrence runs, since when, and how far the
lease has been renewed; see also history.`,
		Example: `  cloudlease status backup
  cloudlease status backup -o json | jq .token`,
		Args: named(),
		RunE: func(c *cobra.Command, args []string) error { return failed(a.status(c.Context(), args[0])) },
	}
}

func (a *app) status(ctx context.Context, name string) error {
	s, err := a.open(ctx)
	if err != nil {
		return err
	}
	ctx, done := a.asking(ctx, "asking for "+quoted(name))
	info, err := s.Inspect(ctx, name)
	done()
	if err != nil {
		return err
	}
	v := show(info)
	if a.json() {
		return render.JSON(a.out, v)
	}
	fields := [][2]string{
		{"name", v.Name},
		{"state", string(v.State)},
		{"holder", v.Holder},
		{"token", tokenText(v.Token)},
		{"since", or(v.Since)},
		{"expires", or(v.Expires)},
	}
	if v.Job != nil {
		fields = append(fields, [][2]string{
			{"running", or(v.Job.Running)}, {"started", or(v.Job.Started)}, {"finished", or(v.Job.Finished)},
		}...)
	}
	if b := v.Broken; b != nil {
		text := fmt.Sprintf("token %d by %s at %s", b.Token, b.By, or(b.At))
		if b.Why != "" {
			text += ": " + b.Why
		}
		fields = append(fields, [2]string{"broken", text})
	}
	return render.Fields(a.out, fields...)
}

func tokenText(t lease.Token) string {
	if t == 0 {
		return ""
	}
	return fmt.Sprint(t)
}

func (a *app) listCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list [PREFIX]", Short: "List the locks whose names begin with a prefix",
		Long: `List the locks whose names begin with PREFIX, or all, in the order of their names. On
DynamoDB this reads the whole table, whatever the prefix.`,
		Example: `  cloudlease list
  cloudlease list nightly/ -o json | jq '.[] | select(.state == "held")'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return failed(a.list(c.Context(), strings.Join(args, "")))
		},
	}
}

func (a *app) list(ctx context.Context, prefix string) error {
	s, err := a.open(ctx)
	if err != nil {
		return err
	}
	ctx, done := a.asking(ctx, "listing")
	locks, err := locksOf(ctx, s, prefix)
	done()
	if err != nil {
		return err
	}
	if a.json() {
		return render.JSON(a.out, locks)
	}
	return render.Table(a.out, listHead, listRows(locks))
}

// locksOf are the locks of a store, in the order of their names.
func locksOf(ctx context.Context, s lease.Store, prefix string) ([]shown, error) {
	l, ok := s.(lease.Lister)
	if !ok {
		return nil, lease.Invalid("list", "", "%s cannot list its locks", s.Limits().Store)
	}
	locks := []shown{}
	for info, err := range l.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		locks = append(locks, show(info))
	}
	slices.SortFunc(locks, func(a, b shown) int { return strings.Compare(a.Name, b.Name) })
	return locks, nil
}

var listHead = []string{"NAME", "STATE", "TOKEN", "SINCE", "EXPIRES", "HOLDER"}

func listRows(locks []shown) [][]string {
	rows := make([][]string, 0, len(locks))
	for _, l := range locks {
		rows = append(rows, []string{l.Name, string(l.State), tokenText(l.Token), or(l.Since), or(l.Expires), l.Holder})
	}
	return rows
}
