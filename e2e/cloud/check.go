//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"github.com/cloudlease/cloudlease/lease"
)

// settled checks what an occurrence came to: one result, right, by the run that the log names, with a token above all before.
func (s *scene) settled(ctx context.Context, at time.Time, payments int, total int64) error {
	found, err := s.deliveries(ctx, at)
	if err != nil {
		return err
	}
	r, entry, err := s.result(ctx, dayBefore(at))
	if err != nil {
		return err
	}
	l, err := s.lock(ctx)
	if err != nil {
		return err
	}
	when := at.Format(time.RFC3339)
	ran := found["ran"]
	switch {
	case len(ran) != 1:
		return fmt.Errorf("%s ran %d times: %s", when, len(ran), outcomes(found))
	case r.Count != payments || r.TotalCents != total || !r.Occurrence.Equal(at):
		return fmt.Errorf("the result of %s is %+v, not of %d payments and %d cents", when, r, payments, total)
	case r.Token != ran[0].Token || entry.Token != ran[0].Token:
		return fmt.Errorf("the result of %s has token %d and fence %d, and the run that finished it had %d", when, r.Token, entry.Token, ran[0].Token)
	case ran[0].Token <= s.last:
		return fmt.Errorf("%s has token %d, which is not above %d", when, ran[0].Token, s.last)
	case l.State == lease.Held || l.Marks.Finished != at.Unix() || l.Marks.Running != 0:
		return fmt.Errorf("after %s the lock is %s with the marks %+v", when, l.State, l.Marks)
	}
	s.last = ran[0].Token
	s.tell("%s  one result, token %d; deliveries: %s", when, s.last, outcomes(found))
	return nil
}

// outcomes counts the deliveries of each outcome.
func outcomes(found map[string][]line) string {
	var parts []string
	for outcome, lines := range found {
		parts = append(parts, fmt.Sprintf("%d %s", len(lines), outcome))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// everyMinute lets the template's own schedule fire, and returns the first minute that it is due.
func (s *scene) everyMinute(ctx context.Context) (time.Time, error) {
	for _, day := range []time.Time{time.Now().UTC(), time.Now().UTC().AddDate(0, 0, -1)} { // midnight may pass meanwhile
		if _, err := s.pay(ctx, day.Format(time.DateOnly), fewPayments); err != nil {
			return time.Time{}, err
		}
	}
	err := s.deploy(ctx, with(parameters, map[string]string{
		"Schedule": "cron(* * * * ? *)", "ScheduleState": "ENABLED", "OccurrencePeriod": "60", "MissedOccurrences": "5",
	}))
	return time.Now().UTC().Truncate(time.Minute), err
}

// onTheMinute waits for the template's own schedule and checks that the function learned the nominal instant.
func (s *scene) onTheMinute(ctx context.Context, since time.Time) error {
	var at time.Time
	err := until(ctx, "the template's own schedule fires", func(ctx context.Context) (bool, error) {
		l, err := s.lock(ctx)
		at = time.Unix(l.Marks.Finished, 0).UTC()
		return at.After(since), err
	})
	if err != nil {
		return err
	}
	if err := s.deploy(ctx, parameters); err != nil { // no more of it
		return err
	}
	if at.Second() != 0 {
		return fmt.Errorf("the template's schedule delivered %s, which is no whole minute", at)
	}
	if err := s.ended(ctx, at, 1); err != nil {
		return err
	}
	l, err := s.lock(ctx)
	if err != nil {
		return err
	}
	at = time.Unix(l.Marks.Finished, 0).UTC() // another minute may have come in between
	r, entry, err := s.result(ctx, dayBefore(at))
	if err != nil {
		return err
	}
	if !r.Occurrence.Equal(at) || r.Count != fewPayments || r.Token != entry.Token || r.Token <= s.last {
		return fmt.Errorf("the result of %s, by the template's own schedule, is %+v", at, r)
	}
	s.last = r.Token
	s.tell("%s  by the template's own schedule: one result, token %d", at.Format(time.RFC3339), r.Token)
	return nil
}

// metered checks that the platform counted what happened, and that the killed run raised an alarm, and nothing else another.
func (s *scene) metered(ctx context.Context) error {
	invocations, err := s.metric(ctx, "AWS/Lambda", "Invocations", s.outputs["FunctionName"])
	if err != nil {
		return err
	}
	failed, err := s.metric(ctx, "AWS/Lambda", "Errors", s.outputs["FunctionName"])
	if err != nil {
		return err
	}
	runs, err := s.metric(ctx, "cloudlease/"+s.name, "Runs", "")
	if err != nil {
		return err
	}
	letters, err := s.deadLetters(ctx)
	switch {
	case err != nil:
		return err
	case failed < 1 || invocations < failed+float64(s.occurrences):
		return fmt.Errorf("the metrics count %v invocations and %v errors", invocations, failed)
	case runs < float64(s.occurrences)+1:
		return fmt.Errorf("the filter of the log counts %v runs", runs)
	case letters != 0:
		return fmt.Errorf("%d dead letters, although all was delivered in the end", letters)
	}
	for resource, wanted := range map[string]types.StateValue{
		"FunctionErrorsAlarm": types.StateValueAlarm, "MisconfiguredAlarm": types.StateValueOk, "StaleWriteAlarm": types.StateValueOk,
	} {
		if err := s.rings(ctx, resource, wanted); err != nil {
			return err
		}
	}
	s.tell("%v invocations, %v of them failed (the killed one among them), %v runs; the alarm of errors rings; no dead letters",
		invocations, failed, runs)
	return nil
}

var errNotRefused = errors.New("it was not refused")
