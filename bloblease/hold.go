package bloblease

import (
	"context"
	"errors"
	"fmt"
	"strings"

	azlease "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/cloudlease/cloudlease/lease"
)

var errOver = errors.New("its own deadline has passed")

// Renew implements lease.Store: one request, none once the grant's own deadline has passed, because the service would take a
// lease that nobody has taken since back to life.
func (s *Store) Renew(ctx context.Context, g lease.Grant) (lease.Grant, error) {
	return s.renew(ctx, "renew", g)
}

func (s *Store) renew(ctx context.Context, op string, g lease.Grant) (lease.Grant, error) {
	sent := s.clock()
	if sent.Fast(g.Sent) >= g.Trust {
		return g, s.lost(op, g.Name, errOver)
	}
	client, id, err := s.leaseOf(g)
	if err != nil {
		return g, err
	}
	header, err := s.send(ctx, func(ctx context.Context) error {
		_, err := client.RenewLease(ctx, nil)
		return err
	})
	if err != nil {
		return g, s.fail(ctx, op, g.Name, holding, err)
	}
	if answered := header.Get("X-Ms-Lease-Id"); !strings.EqualFold(answered, id) {
		return g, s.lost(op, g.Name, errors.New("the service renewed another's lease instead: this one is over"))
	}
	g.Sent, g.Trust = sent, g.TTL
	return g, nil
}

// Save implements lease.Store: one request, and a renewal before it if less than half of the trust is left, so that the lease
// does not end under the write.
func (s *Store) Save(ctx context.Context, g lease.Grant, value []byte) (lease.Grant, error) {
	const op = "save"
	if left := g.Trust - s.clock().Fast(g.Sent); left < g.TTL/2 {
		var err error
		if g, err = s.renew(ctx, op, g); err != nil {
			return g, err
		}
	}
	return g, s.rewrite(ctx, op, g, func(n *note) { n.value = value })
}

// rewrite changes the note of a blob under g's lease, on the condition that it is as it was last seen: an earlier write of the
// same holder that arrives late is refused.
func (s *Store) rewrite(ctx context.Context, op string, g lease.Grant, change func(*note)) error {
	rec, known := s.lastSeen(g.Name)
	known = known && rec.token == g.Token && rec.locked()
	for step := 0; ; step++ {
		if !known {
			var err error
			if rec, err = s.load(ctx, op, g.Name); err != nil {
				return err
			}
			if rec.absent() || rec.token != g.Token {
				return s.lost(op, g.Name, whyLost(rec))
			}
		}
		n := rec.note
		n.own(g)
		change(&n)
		etag, err := s.annotate(ctx, g.Name, n, conditions(leaseID(g.Attempt, g.Token), rec.etag))
		if err == nil {
			rec.etag, rec.note = etag, n
			s.saw(rec)
			return nil
		}
		if class, _ := judge(ctx, taking, err); !errors.Is(class, errChanged) || leaseOver(err) || step == maxSteps {
			return s.fail(ctx, op, g.Name, holding, err)
		}
		s.forget(g.Name)
		known = false
	}
}

// Release implements lease.Store. Without anything to leave behind it is one request. Otherwise the lock is given up by the
// write that leaves it: the blob's metadata then name the lease as given up, and whoever wants the lock ends it. The second
// request only does so at once. A grant that this store has seen overtaken costs none.
func (s *Store) Release(ctx context.Context, g lease.Grant, f lease.Final) error {
	if g.Token == 0 {
		return s.releaseUnknown(ctx, g.Request)
	}
	leaves := f.Value != nil || f.Marks != nil || g.Marks.Running != 0
	if seen, known := s.lastSeen(g.Name); known && seen.token > g.Token && !leaves {
		s.unclaim(g.Request)
		return s.lost("release", g.Name, whyLost(seen))
	}
	client, id, err := s.leaseOf(g)
	if err != nil {
		return err
	}
	if leaves {
		err = s.leave(ctx, g, id, f)
	} else if err = s.releaseLease(ctx, client); err == nil {
		s.released(g)
	} else {
		err = s.fail(ctx, "release", g.Name, holding, err)
	}
	if err != nil && !isLost(err) {
		return err
	}
	s.unclaim(g.Request)
	if err != nil {
		return s.judgeRelease(ctx, g, id, f)
	}
	return nil
}

// isLost tells whether err itself is a loss. The cause of a context, which err may wrap, says it of another lease.
func isLost(err error) bool {
	e, ok := made(err)
	return ok && errors.Is(e.Class, lease.ErrLost)
}

// leave writes what a release leaves behind and gives the lock up.
func (s *Store) leave(ctx context.Context, g lease.Grant, id string, f lease.Final) error {
	if err := s.rewrite(ctx, "release", g, func(n *note) { n.free(id, f) }); err != nil {
		return err
	}
	if err := s.unlease(ctx, g.Name, id); err == nil { // if not, whoever comes next does it
		s.released(g)
	}
	return nil
}

// free makes n the note of a lock that its holder has given up.
func (n *note) free(id string, f lease.Final) {
	n.freed = id
	if f.Value != nil {
		n.value = f.Value
	}
	if f.Marks != nil {
		n.marks = *f.Marks
	}
	n.settled()
}

// leaveLate is leave after the lease has ended and before anybody has claimed the lock: what was done still counts. The condition
// is the blob as it was just read.
func (s *Store) leaveLate(ctx context.Context, g lease.Grant, id string, f lease.Final, rec record) error {
	n := rec.note
	n.own(g)
	n.free(id, f)
	_, err := s.annotate(ctx, g.Name, n, conditions("", rec.etag))
	s.forget(g.Name)
	if class, _ := judge(ctx, taking, err); err != nil && (errors.Is(class, errChanged) || errors.Is(class, lease.ErrHeld)) {
		return s.lost("release", g.Name, errors.New("another has claimed it just now"))
	}
	if err != nil {
		return s.fail(ctx, "release", g.Name, holding, err)
	}
	return nil
}

// own makes n the note of g's claim.
func (n *note) own(g lease.Grant) {
	if n.token != g.Token { // the claim was not written into the note
		n.token, n.holder, n.since, n.freed, n.before = g.Token, "", 0, "", n.marks.Started
	}
	n.marks = g.Marks
}

// unlease ends a lease at the service.
func (s *Store) unlease(ctx context.Context, name, id string) error {
	client, err := s.leaseClient(name, id)
	if err != nil {
		return err
	}
	return s.releaseLease(ctx, client)
}

func (s *Store) releaseLease(ctx context.Context, client *azlease.BlobClient) error {
	_, err := s.send(ctx, func(ctx context.Context) error {
		_, err := client.ReleaseLease(ctx, nil)
		return err
	})
	return err
}

// released remembers the blob that a release left, so that the next claim need not look.
func (s *Store) released(g lease.Grant) {
	rec, known := s.lastSeen(g.Name)
	if !known || rec.token != g.Token {
		s.forget(g.Name)
		return
	}
	rec.state = azlease.StateTypeAvailable
	s.saw(rec)
}

// judgeRelease says what a refused release means: an earlier try of it was stored, the lease has ended and nobody has taken the
// lock since, or the grant is not the lock's any more.
func (s *Store) judgeRelease(ctx context.Context, g lease.Grant, id string, f lease.Final) error {
	rec, err := s.load(ctx, "release", g.Name)
	if err != nil {
		return err
	}
	ours := !rec.absent() && rec.token == g.Token && (rec.note.broken == nil || rec.note.broken.Token != g.Token)
	leaves := f.Value != nil || f.Marks != nil || g.Marks.Running != 0
	switch {
	case ours && rec.note.freed == id:
		return nil
	case ours && !leaves && rec.state == azlease.StateTypeAvailable:
		return nil
	case ours && leaves && rec.state == azlease.StateTypeExpired && rec.fault == nil:
		return s.leaveLate(ctx, g, id, f, rec)
	case f.Marks != nil && f.Marks.Finished > g.Marks.Finished && rec.note.marks.Finished >= f.Marks.Finished:
		return nil // it was stored, and the lock has been taken since
	}
	return s.lost("release", g.Name, whyLost(rec))
}

func whyLost(rec record) error {
	switch {
	case rec.absent():
		return errors.New("its blob is gone")
	case rec.note.broken != nil && rec.note.broken.Token == rec.token:
		return fmt.Errorf("it was broken by %s", rec.note.broken.By)
	case rec.held() && rec.holder() != "":
		return fmt.Errorf("the lock has token %d now, of %s", rec.token, rec.holder())
	}
	return fmt.Errorf("the lock has token %d now", rec.token)
}

// releaseUnknown frees what an attempt was granted whose outcome is not known, and sees to it that nothing is granted to it
// later: an answer that never came may be that of a request that is still on its way.
func (s *Store) releaseUnknown(ctx context.Context, r lease.Request) error {
	const op = "release"
	c, asked := s.claimed(r)
	if !asked {
		return s.lost(op, r.Name, errors.New("it never asked for the lease"))
	}
	id := leaseID(r.Attempt, c.token)
	for range 2 {
		err := s.unlease(ctx, r.Name, id)
		if err == nil {
			s.unclaim(r)
			s.forget(r.Name)
			return nil
		}
		if class, _ := judge(ctx, holding, err); !errors.Is(class, lease.ErrLost) {
			return s.fail(ctx, op, r.Name, holding, err)
		}
		n := c.note // a new version of the blob: a lease asked for on the old one is refused
		n.marks.Started, n.marks.Running = n.before, 0
		_, err = s.annotate(ctx, r.Name, n, conditions("", c.etag))
		if class, _ := judge(ctx, taking, err); err == nil || !errors.Is(class, lease.ErrHeld) {
			if err != nil && !errors.Is(class, errChanged) && !missing(err) {
				return s.fail(ctx, op, r.Name, holding, err)
			}
			break
		}
	}
	s.unclaim(r)
	s.forget(r.Name)
	return s.lost(op, r.Name, errors.New("there was nothing to free"))
}
