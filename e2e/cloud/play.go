//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// options say what is played.
type options struct {
	occurrences int
	path        string // of the template
	out         io.Writer
}

// The lock's lease, the function's time-out, half of which outlasts a dead run's lease, and the pause after each payment.
const (
	ttl     = "5s"
	timeout = "60"
	pace    = "100ms"
)

// A day has few payments, so that its run is short, and that of the run which is killed has many.
const (
	fewPayments  = 3
	manyPayments = 60
)

// scene is what is played on one stack, and what was found.
type scene struct {
	*stack
	options

	began time.Time
	last  lease.Token // the newest run's
}

func (s *scene) tell(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	_, _ = fmt.Fprintf(s.out, "%6.1fs  %s\n", time.Since(s.began).Seconds(), text)
}

// parameters of the settlement's stack, but for those of the schedule.
var parameters = map[string]string{"LeaseTTL": ttl, "TimeoutSeconds": timeout, "ScheduleState": "DISABLED"}

func with(base, more map[string]string) map[string]string {
	all := maps.Clone(base)
	maps.Copy(all, more)
	return all
}

// play is the whole of it. Whatever happens, nothing stays.
func play(ctx context.Context, c *cloud, o options) (err error) {
	dir, err := os.MkdirTemp("", "cloudlease-cloud-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	name := "cloudlease-" + strings.ToLower(rand.Text()[:6])
	s := &scene{options: o, began: time.Now()}
	text, err := c.pack(ctx, o.path, dir, "dynamolock", "consullock")
	if err != nil {
		return err
	}
	s.stack = &stack{cloud: c, name: name, template: text}
	s.tell("built and uploaded; the stack is %s", name)
	err = s.settle(ctx)
	retained, deleteErr := s.delete(context.WithoutCancel(ctx))
	if err := errors.Join(err, deleteErr); err != nil {
		return err
	}
	if len(retained) != 3 {
		return fmt.Errorf("of the stack's three tables %d outlived it: %v", len(retained), retained)
	}
	s.tell("the stack is deleted; its %d tables outlived it and are deleted too", len(retained))
	return nil
}

// settle deploys and lets the schedules fire.
func (s *scene) settle(ctx context.Context) error {
	if err := s.deploy(ctx, parameters); err != nil {
		return err
	}
	if err := s.set(ctx, map[string]string{"SETTLEMENT_PACE": pace}); err != nil {
		return err
	}
	s.tell("deployed")
	first := time.Date(2026, time.March, 2, 0, 5, 0, 0, time.UTC)
	for i := range s.occurrences {
		play := s.together
		if i == s.occurrences/2 {
			play = s.killed
		}
		if err := play(ctx, first.AddDate(0, 0, i)); err != nil {
			return err
		}
	}
	minute, err := s.everyMinute(ctx)
	if err != nil {
		return err
	}
	if err := s.failures(ctx); err != nil {
		return err
	}
	if err := s.onTheMinute(ctx, minute); err != nil {
		return err
	}
	return s.metered(ctx)
}

// together delivers an occurrence five times at once.
func (s *scene) together(ctx context.Context, at time.Time) error {
	total, err := s.pay(ctx, dayBefore(at), fewPayments)
	if err == nil {
		err = s.schedule(ctx, at, 3)
	}
	if err == nil {
		err = s.send(ctx, event(at), 2)
	}
	if err == nil {
		err = s.ended(ctx, at, 5)
	}
	if err != nil {
		return err
	}
	return s.settled(ctx, at, fewPayments, total)
}

// killed delivers an occurrence once, kills the run while it holds the lock, and delivers it twice more.
func (s *scene) killed(ctx context.Context, at time.Time) error {
	total, err := s.pay(ctx, dayBefore(at), manyPayments)
	if err == nil {
		err = s.schedule(ctx, at, 1)
	}
	if err != nil {
		return err
	}
	var victim lease.Info
	err = until(ctx, "the run of "+at.Format(time.DateOnly)+" holds the lock", func(ctx context.Context) (bool, error) {
		victim, err = s.lock(ctx)
		return victim.State == lease.Held && victim.Marks.Running == at.Unix(), err
	})
	if err != nil {
		return err
	}
	n, err := s.kill()
	if err == nil && n == 0 {
		err = errors.New("no process of the function was found")
	}
	if err == nil {
		s.tell("%s  killed in the middle, with token %d; delivered twice more", at.Format(time.RFC3339), victim.Token)
		err = s.send(ctx, event(at), 2)
	}
	if err == nil {
		err = s.ended(ctx, at, 3)
	}
	if err == nil {
		err = s.settled(ctx, at, manyPayments, total)
	}
	if err == nil && s.last <= victim.Token {
		err = fmt.Errorf("%s was finished with token %d, which is not above the killed run's, %d", at, s.last, victim.Token)
	}
	return err
}

// ended waits until that many deliveries of an occurrence have ended well, and nobody holds the lock.
func (s *scene) ended(ctx context.Context, at time.Time, n int) error {
	return until(ctx, fmt.Sprintf("%d deliveries of %s have ended", n, at.Format(time.RFC3339)), func(ctx context.Context) (bool, error) {
		found, err := s.deliveries(ctx, at)
		if err != nil || len(found["ran"])+len(found["already-done"]) < n {
			return false, err
		}
		l, err := s.lock(ctx)
		return l.State != lease.Held, err
	})
}

func dayBefore(at time.Time) string { return at.AddDate(0, 0, -1).Format(time.DateOnly) }
