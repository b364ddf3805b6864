package dynamolock

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cloudlease/cloudlease/lease"
)

// attrBroken is the last forced release: a map of by, why, token and at (ms on the service's clock).
const attrBroken = "broken"

// Break implements lease.Breaker: one write, one read more while the service's time is not known.
func (s *Store) Break(ctx context.Context, name string, token lease.Token, r lease.Reason) error {
	const op = "break"
	if err := lease.CheckName(name); err != nil {
		return lease.Invalid(op, name, "%w", err)
	}
	switch {
	case r.By == "":
		return lease.Invalid(op, name, "it is not said who breaks the lock")
	case len(r.By)+len(r.Why) > lease.MaxValue:
		return lease.Invalid(op, name, "who and why have more than %d bytes", lease.MaxValue)
	case token == 0:
		return lease.Invalid(op, name, "the token of the grant to break is missing; inspect the lock")
	}
	earliest, ok := s.time.Earliest(s.clock())
	if !ok {
		if _, err := s.load(ctx, op, name); err != nil {
			return err
		}
		earliest, _ = s.time.Earliest(s.clock())
	}
	set := "SET #h = :free, #n = :n, #r = :zero, #x = :x"
	condition := "#v = :v AND #h <> :free"
	_, err := s.update(ctx, &dynamodb.UpdateItemInput{
		Key: keyOf(name), UpdateExpression: &set, ConditionExpression: &condition,
		ExpressionAttributeNames: map[string]string{
			"#v": attrVersion, "#h": attrHolder, "#n": attrNonce, "#r": attrRunning, "#x": attrBroken,
		},
		ExpressionAttributeValues: item{
			":v": num(token), ":free": str(""), ":n": str(newNonce()), ":zero": num[int64](0),
			":x": &types.AttributeValueMemberM{Value: item{
				"by": str(r.By), "why": str(r.Why), "token": num(token), "at": num(earliest.UnixMilli()),
			}},
		},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err == nil {
		s.forget(name)
		return nil
	}
	sight, err := s.refusal(ctx, op, name, err)
	if err != nil {
		return err
	}
	return &lease.Error{
		Op: op, Store: place(s.table), Name: name, Class: lease.ErrConflict, Err: whyNotBroken(sight.rec, token),
		Hint: "nothing was changed; inspect the lock again",
	}
}

func whyNotBroken(rec record, token lease.Token) error {
	switch {
	case rec.absent():
		return fmt.Errorf("no lock of this name was ever taken")
	case rec.free():
		return fmt.Errorf("it is free; its last token was %d", rec.version)
	case rec.version != token:
		return fmt.Errorf("it is held by %s with token %d now, not with %d", rec.displayed(), rec.version, token)
	}
	return fmt.Errorf("it changed in between")
}

// brokenOf reads what Break left. It is for display: garbage is no error.
func brokenOf(it item) *lease.Reason {
	m, ok := it[attrBroken].(*types.AttributeValueMemberM)
	if !ok {
		return nil
	}
	d := decoder{it: m.Value}
	r := &lease.Reason{
		By: d.str("by"), Why: d.str("why"), Token: lease.Token(d.optional("token", int64(lease.MaxToken))), //nolint:gosec // not negative
		At: time.UnixMilli(d.optional("at", maxMillis)),
	}
	if d.err != nil {
		return nil
	}
	return r
}

// RaiseFloor implements lease.Floorer: one read and one write. A name that was never locked gets a free record.
func (s *Store) RaiseFloor(ctx context.Context, name string, token lease.Token) error {
	const op = "raise the floor of"
	if err := lease.CheckName(name); err != nil {
		return lease.Invalid(op, name, "%w", err)
	}
	if token == 0 || token >= lease.MaxToken {
		return lease.Invalid(op, name, "the floor %d is not from 1 to %d", token, lease.MaxToken-1)
	}
	for range maxSteps {
		sight, err := s.load(ctx, op, name)
		if err != nil {
			return err
		}
		rec, now := sight.rec, s.clock()
		if !rec.absent() && !rec.free() && !s.dead(sight, now) {
			return rec.held(s.untilDead(sight, now))
		}
		if rec.version >= token {
			return nil
		}
		set := "SET #v = :v, #h = :free, #n = :n, #e = :e, #l = :l, #r = :zero"
		condition := "attribute_not_exists(#n)"
		values := item{
			":v": num(token), ":free": str(""), ":n": str(newNonce()), ":e": num(rec.expires), ":l": num(max(rec.ttl, 1)),
			":zero": num[int64](0),
		}
		if !rec.absent() {
			condition = "#n = :seen"
			values[":seen"] = str(rec.nonce)
		}
		_, err = s.update(ctx, &dynamodb.UpdateItemInput{
			Key: keyOf(name), UpdateExpression: &set, ConditionExpression: &condition,
			ExpressionAttributeNames: map[string]string{
				"#v": attrVersion, "#h": attrHolder, "#n": attrNonce, "#e": attrExpires, "#l": attrTTL, "#r": attrRunning,
			},
			ExpressionAttributeValues: values,
		})
		if err == nil {
			s.forget(name)
			return nil
		}
		if _, conditional := refused(err); !conditional {
			return fail(ctx, op, s.table, name, true, err)
		}
	}
	return &lease.Error{
		Op: op, Store: place(s.table), Name: name, Class: lease.ErrUnavailable, Hint: "the lock is busy; try again while nobody uses it",
	}
}
