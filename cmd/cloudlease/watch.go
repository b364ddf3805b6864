package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudlease/cloudlease/cmd/cloudlease/internal/child"
	"github.com/cloudlease/cloudlease/cmd/cloudlease/internal/render"
	"github.com/cloudlease/cloudlease/lease"
)

// The pause between looks: a look can cost a scan of a table.
const (
	watchEvery = 2 * time.Second
	watchLeast = 500 * time.Millisecond
)

func (a *app) watchCommand() *cobra.Command {
	every := watchEvery
	c := &cobra.Command{
		Use: "watch [PREFIX]", Short: "Show the locks whose names begin with a prefix, as they change",
		Long: `Show a table of the locks whose names begin with PREFIX, or of all, and keep it up to
date until Ctrl-C. When stdout is not a terminal, every change is a table of its own;
with -o json it is one line: an array of the locks as list has them.

Every look is a list: on DynamoDB it reads the whole table.`,
		Example: `  cloudlease watch
  cloudlease watch nightly/ --interval 10s
  cloudlease watch -o json | jq -c '[.[] | {name, holder}]'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if every < watchLeast {
				return usage("--interval %v is below %v", every, watchLeast)
			}
			prefix := ""
			if len(args) > 0 {
				prefix = args[0]
			}
			return failed(a.watch(c.Context(), prefix, every))
		},
	}
	c.Flags().DurationVar(&every, "interval", every, "the pause between looks")
	return c
}

func (a *app) watch(ctx context.Context, prefix string, every time.Duration) error {
	s, err := a.open(ctx)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	live := !a.json() && child.IsTerminal(1)
	var last []shown
	for first := true; ; first = false {
		look, done := a.asking(ctx, "listing")
		locks, err := locksOf(look, s, prefix)
		done()
		switch {
		case ctx.Err() != nil: // the user has seen enough
			return nil
		case errors.Is(err, lease.ErrUnavailable) && !first:
			a.say("%v; looking again in %v", err, every)
		case err != nil:
			return err
		case live || first || !reflect.DeepEqual(locks, last):
			if err := a.draw(s, locks, live); err != nil {
				return err
			}
			last = locks
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// draw writes one look. A live one replaces the one before in a single write, so that it does not flicker.
func (a *app) draw(s lease.Store, locks []shown, live bool) error {
	var b bytes.Buffer
	switch {
	case a.json():
		if err := render.JSONLine(&b, locks); err != nil {
			return err
		}
	default:
		if live {
			b.WriteString("\x1b[H\x1b[2J")
		}
		fmt.Fprintf(&b, "%s: %d lock(s) at %s\n", s.Limits().Store, len(locks), time.Now().UTC().Format(time.TimeOnly))
		if err := render.Table(&b, listHead, listRows(locks)); err != nil {
			return err
		}
	}
	_, err := b.WriteTo(a.out)
	return err
}
