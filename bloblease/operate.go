package bloblease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	azlease "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/cloudlease/cloudlease/lease"
)

// MaxGrace is the longest grace that a lock can be broken with.
const MaxGrace = 60 * time.Second

// Break implements lease.Breaker: the lock is free at once. It reads the blob, ends its lease on the condition that it is as it
// was read, and writes the reason: three requests. A token of 0 is that of a blob that this library never granted, such as one
// that was leased by hand. If another takes the lock before the reason is written, the reason is logged and lost.
func (s *Store) Break(ctx context.Context, name string, token lease.Token, r lease.Reason) error {
	_, err := s.breakLease(ctx, name, token, 0, r)
	return err
}

// BreakIn is Break with a grace, in whole seconds up to MaxGrace: until it is over, or the lease's own time if that is shorter,
// the lock stays held; the holder learns it at its next renewal, which is refused. It returns how long that is. The service
// lets nobody write to the blob meanwhile, so that the reason is not kept with the lock.
func (s *Store) BreakIn(ctx context.Context, name string, token lease.Token, grace time.Duration, r lease.Reason) (time.Duration, error) {
	if grace < 0 || grace > MaxGrace || grace%time.Second != 0 {
		return 0, lease.Invalid("break", name, "the grace %v is not one of 0 s to %v in whole seconds", grace, MaxGrace)
	}
	return s.breakLease(ctx, name, token, grace, r)
}

func (s *Store) breakLease(ctx context.Context, name string, token lease.Token, grace time.Duration, r lease.Reason) (time.Duration, error) {
	const op = "break"
	switch {
	case r.By == "":
		return 0, lease.Invalid(op, name, "it is not said who breaks the lock")
	case len(r.By)+len(r.Why) > lease.MaxValue:
		return 0, lease.Invalid(op, name, "who and why have more than %d bytes", lease.MaxValue)
	}
	rec, err := s.load(ctx, op, name)
	if err != nil {
		return 0, err
	}
	if why := whyNotBroken(rec, token); why != nil {
		return 0, s.notBroken(name, why)
	}
	left, err := s.endLease(ctx, rec, grace)
	if class, _ := judge(ctx, taking, err); err != nil && errors.Is(class, errChanged) {
		return 0, s.notBroken(name, errors.New("it changed in between"))
	}
	if err != nil {
		return 0, s.fail(ctx, op, name, taking, err)
	}
	s.forget(name)
	if left > 0 {
		return left, nil
	}
	return 0, s.keepReason(ctx, rec, r)
}

// endLease breaks the lease of a blob that is as it was seen.
func (s *Store) endLease(ctx context.Context, rec record, grace time.Duration) (left time.Duration, err error) {
	client, err := azlease.NewBlobClient(s.blob(rec.name), nil)
	if err != nil {
		return 0, err
	}
	_, err = s.send(ctx, func(ctx context.Context) error {
		resp, err := client.BreakLease(ctx, &azlease.BlobBreakOptions{
			BreakPeriod:              new(int32(grace / time.Second)), // always sent: without it the lease runs on to its end
			ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &rec.etag},
		})
		if err == nil && resp.LeaseTime != nil {
			left = time.Duration(*resp.LeaseTime) * time.Second
		}
		return err
	})
	return left, err
}

// keepReason writes why the lock was broken. The write's condition also decides between operators who break at one time.
func (s *Store) keepReason(ctx context.Context, rec record, r lease.Reason) error {
	earliest, _ := s.time.Earliest(s.clock())
	n := rec.note
	if !rec.current() {
		n.holder, n.since = "", 0
	}
	n.token, n.freed = rec.token, ""
	n.settled()
	n.broken = &lease.Reason{By: r.By, Why: r.Why, Token: rec.token, At: earliest}
	_, err := s.annotate(ctx, rec.name, n, conditions("", rec.etag))
	class, _ := judge(ctx, taking, err)
	switch {
	case err == nil:
		return nil
	case !errors.Is(class, errChanged) && !errors.Is(class, lease.ErrHeld):
		return s.fail(ctx, "break", rec.name, taking, err)
	}
	have, err := s.load(ctx, "break", rec.name)
	if err != nil {
		return err
	}
	if b := have.note.broken; b != nil && b.Token == rec.token {
		return s.notBroken(rec.name, fmt.Errorf("%s has broken it at the same time", b.By))
	}
	s.warn("a broken lock was taken before the reason could be kept with it", slog.String("name", rec.name),
		slog.String("by", r.By), slog.String("why", r.Why), slog.Uint64("token", uint64(rec.token)))
	return nil
}

func (s *Store) notBroken(name string, why error) error {
	return &lease.Error{
		Op: "break", Store: s.place, Name: name, Class: lease.ErrConflict, Err: why,
		Hint: "nothing was changed; inspect the lock again",
	}
}

func whyNotBroken(rec record, token lease.Token) error {
	switch {
	case rec.absent():
		return errors.New("no lock of this name was ever taken")
	case rec.unexplained(token):
		return nil // an earlier try broke it, or somebody by hand: the reason is still to be kept
	case rec.describe().State == lease.Free:
		return fmt.Errorf("it is free; its last token was %d", rec.token)
	case rec.token != token:
		return fmt.Errorf("it is held with token %d now, not with %d: %s", rec.token, token, rec.holder())
	}
	return nil
}

// RaiseFloor implements lease.Floorer: one read and one write. A name that was never locked gets a free blob. Metadata that
// cannot be read are replaced, and with them the value and the marks that they may have held.
func (s *Store) RaiseFloor(ctx context.Context, name string, token lease.Token) error {
	const op = "raise the floor of"
	if err := lease.CheckName(name); err != nil {
		return lease.Invalid(op, name, "%w", err)
	}
	if token == 0 || token >= lease.MaxToken {
		return lease.Invalid(op, name, "the floor %d is not from 1 to %d", token, lease.MaxToken-1)
	}
	for range maxSteps {
		rec, err := s.load(ctx, op, name)
		if err != nil {
			return err
		}
		if rec.held() {
			return rec.heldError()
		}
		if rec.token >= token && rec.fault == nil {
			return nil
		}
		err = s.raise(ctx, rec, max(token, rec.token))
		s.forget(name)
		class, _ := judge(ctx, taking, err)
		switch {
		case err == nil:
			return nil
		case !errors.Is(class, errChanged) && !errors.Is(class, lease.ErrHeld):
			return s.fail(ctx, op, name, taking, err)
		}
	}
	return &lease.Error{
		Op: op, Store: s.place, Name: name, Class: lease.ErrUnavailable, Hint: "the lock is busy; try again while nobody uses it",
	}
}

func (s *Store) raise(ctx context.Context, rec record, token lease.Token) error {
	n := rec.note
	n.token, n.holder, n.since, n.freed = token, "", 0, ""
	n.settled() // an operator is no judge of whether a claim was leased
	if rec.absent() {
		_, err := s.create(ctx, rec.name, n)
		return err
	}
	if rec.given() && rec.locked() {
		if err := s.unlease(ctx, rec.name, rec.note.freed); err != nil {
			return err
		}
	}
	etag := rec.etag
	if !s.opt.MetadataTokens {
		var err error
		if etag, err = s.setNumber(ctx, rec.name, token, etag); err != nil || rec.fault == nil {
			return err
		}
	}
	_, err := s.annotate(ctx, rec.name, n, conditions("", etag))
	return err
}
