//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"github.com/cloudlease/cloudlease/lease"
)

// failure is something that is wrong with a deployment, and how the function says so.
type failure struct {
	what    string
	spoil   func(ctx context.Context) error
	payload []byte
	says    string // in the error of the log's line
	dies    bool   // before it can take the event: the stand-in has what it said in its answer then, not in the log
}

// failures deploys the template twice more, and breaks these stacks in one way after the other. Nothing may be written.
func (s *scene) failures(ctx context.Context) error {
	if err := s.refused(ctx); err != nil {
		return err
	}
	return errors.Join(s.broken(ctx), s.unreachable(ctx))
}

// refused wants CloudFormation to refuse parameters that cannot work.
func (s *scene) refused(ctx context.Context) error {
	for _, wrong := range []map[string]string{{"LeaseTTL": "soon"}, {"Store": "oracle"}, {"Store": "consul"}, {"TimeoutSeconds": "5"}} {
		bad := &stack{cloud: s.cloud, name: s.name + "-bad", template: s.template}
		if err := bad.deploy(ctx, with(parameters, wrong)); err == nil {
			_, err = bad.delete(ctx)
			return errors.Join(fmt.Errorf("deploy with %v: %w", wrong, errNotRefused), err)
		}
	}
	s.tell("four wrong parameters refused before anything was made")
	return nil
}

// broken spoils a stack of its own.
func (s *scene) broken(ctx context.Context) (err error) {
	b := &stack{cloud: s.cloud, name: s.name + "-broken", template: s.template}
	if err := b.deploy(ctx, parameters); err != nil {
		return err
	}
	defer func() {
		_, deleteErr := b.delete(context.WithoutCancel(ctx))
		err = errors.Join(err, deleteErr)
	}()
	at := time.Date(2026, time.March, 2, 0, 5, 0, 0, time.UTC)
	if _, err := b.pay(ctx, dayBefore(at), fewPayments); err != nil {
		return err
	}
	results := b.outputs["ResultsTableName"]
	for _, f := range []failure{
		{"an event without an instant", nothing, []byte(`{}`), lease.ErrInvalid.Error(), false},
		{"a wrong setting", func(ctx context.Context) error {
			return b.set(ctx, map[string]string{"LEASE_TTL": "soon"})
		}, event(at), "LEASE_TTL", true},
		{"no table of results", func(ctx context.Context) error {
			return errors.Join(b.set(ctx, map[string]string{"LEASE_TTL": ttl}), b.drop(ctx, results))
		}, event(at), lease.ErrMisconfigured.Error(), false},
		{"no table of locks", func(ctx context.Context) error {
			return b.drop(ctx, b.outputs["LockTableName"])
		}, event(at), lease.ErrMisconfigured.Error(), false},
	} {
		if err := s.fails(ctx, b, f); err != nil {
			return fmt.Errorf("%s: %w", f.what, err)
		}
		if f.what == "no table of locks" {
			continue
		}
		l, err := b.lock(ctx)
		if err != nil {
			return err
		}
		if l.State == lease.Held || l.Marks.Finished != 0 {
			return fmt.Errorf("%s: the lock is %s with the marks %+v", f.what, l.State, l.Marks)
		}
		if f.what == "no table of results" {
			continue
		}
		if n, err := b.results(ctx); n != 0 || err != nil {
			return errors.Join(fmt.Errorf("%s: %d results were written", f.what, n), err)
		}
	}
	if err := b.rings(ctx, "MisconfiguredAlarm", types.StateValueAlarm); err != nil {
		return err
	}
	if err := b.send(ctx, []byte(`{}`), 1); err != nil {
		return err
	}
	err = until(ctx, "what fails to the end is a dead letter", func(ctx context.Context) (bool, error) {
		n, err := b.deadLetters(ctx)
		return n == 1, err
	})
	if err != nil {
		return err
	}
	s.tell("the alarm of what is misconfigured rings, and what failed to the end is a dead letter")
	return nil
}

func nothing(context.Context) error { return nil }

// unreachable deploys the function whose lock is in Consul, where nobody listens.
func (s *scene) unreachable(ctx context.Context) (err error) {
	u := &stack{cloud: s.cloud, name: s.name + "-consul", template: s.template}
	err = u.deploy(ctx, with(parameters, map[string]string{
		"Store": "consul", "ConsulAddress": "http://127.0.0.1:1", "LeaseTTL": "10s", "TimeoutSeconds": "10",
	}))
	if err != nil {
		return err
	}
	defer func() {
		_, deleteErr := u.delete(context.WithoutCancel(ctx))
		err = errors.Join(err, deleteErr)
	}()
	at := time.Date(2026, time.March, 2, 0, 5, 0, 0, time.UTC)
	f := failure{"Consul out of reach", nothing, event(at), lease.ErrUnavailable.Error(), false}
	if err := s.fails(ctx, u, f); err != nil {
		return fmt.Errorf("%s: %w", f.what, err)
	}
	return nil
}

// fails spoils something, invokes the function, and wants an error to the caller and its class in the log.
func (s *scene) fails(ctx context.Context, broken *stack, f failure) error {
	before, err := broken.log(ctx)
	if err == nil {
		err = f.spoil(ctx)
	}
	if err != nil {
		return err
	}
	got, err := broken.call(ctx, f.payload)
	if err != nil {
		return err
	}
	if !got.failed {
		return fmt.Errorf("the invocation succeeded: %.200s", got.body)
	}
	if f.dies {
		if !strings.Contains(got.body, f.says) || !strings.Contains(got.body, "the function cannot start") {
			return fmt.Errorf("the answer says only: %.500s", got.body)
		}
		s.tell("%s: the function cannot start, and says so", f.what)
		return nil
	}
	var said line
	err = until(ctx, fmt.Sprintf("the log says %q", f.says), func(ctx context.Context) (bool, error) {
		lines, err := broken.log(ctx)
		for _, l := range lines[min(len(before), len(lines)):] {
			if l.Msg == "singleton delivery" && l.Level == "ERROR" && strings.Contains(l.Err, f.says) {
				said = l
				return true, nil
			}
		}
		return false, err
	})
	if err != nil {
		return err
	}
	s.tell("%s: failed, and the log says: %.150s", f.what, said.Err)
	return nil
}
