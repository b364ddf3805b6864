package dynamolock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/lease"
)

// step is one operation that a denial can meet.
type step struct {
	op   string // the action that is denied
	cold bool   // it reads before it writes
	warm bool   // the store has learned the service's time before
	do   func(t *testing.T, h host, l *lease.Lease) error
}

// first is the action that the operation needs first.
func (st step) first() string {
	if st.cold {
		return "GetItem"
	}
	return st.op
}

// steps are what a locker and a watcher do. The lease is of the lock "held".
var steps = map[string]step{
	"cold acquire": {op: "GetItem", cold: true, do: func(t *testing.T, h host, _ *lease.Lease) error {
		_, err := h.client(t, nil).TryAcquire(t.Context(), "x")
		return err
	}},
	"cold acquire of a held lock": {op: "GetItem", cold: true, do: func(t *testing.T, h host, _ *lease.Lease) error {
		_, err := h.client(t, nil).Acquire(t.Context(), "held")
		return err
	}},
	"acquire": {op: "UpdateItem", cold: true, do: func(t *testing.T, h host, _ *lease.Lease) error {
		_, err := h.client(t, nil).TryAcquire(t.Context(), "x")
		return err
	}},
	"do": {op: "UpdateItem", cold: true, do: func(t *testing.T, h host, _ *lease.Lease) error {
		return h.client(t, nil).Do(t.Context(), "x", func(context.Context, *lease.Lease) error { return errors.New("it ran") })
	}},
	"warm acquire of a held lock": {op: "UpdateItem", warm: true, do: func(t *testing.T, h host, l *lease.Lease) error {
		_, err := h.client(t, nil).Acquire(t.Context(), l.Name())
		return err
	}},
	"wait": {op: "GetItem", do: func(t *testing.T, h host, l *lease.Lease) error {
		return h.client(t, nil).Wait(t.Context(), &lease.HeldError{Name: l.Name()})
	}},
	"renew": {op: "UpdateItem", do: func(t *testing.T, h host, l *lease.Lease) error {
		_, err := h.Renew(t.Context(), l.Grant())
		return err
	}},
	"save": {op: "UpdateItem", do: func(t *testing.T, _ host, l *lease.Lease) error {
		return l.Save(t.Context(), []byte("v"))
	}},
	"inspect": {op: "GetItem", do: func(t *testing.T, h host, l *lease.Lease) error {
		_, err := h.Inspect(t.Context(), l.Name())
		return err
	}},
	"break": {op: "UpdateItem", cold: true, do: func(t *testing.T, h host, l *lease.Lease) error {
		return h.Break(t.Context(), l.Name(), l.Token(), why)
	}},
	"raise the floor": {op: "UpdateItem", cold: true, do: func(t *testing.T, h host, _ *lease.Lease) error {
		return h.RaiseFloor(t.Context(), "x", 7)
	}},
	"list": {op: "Scan", do: func(t *testing.T, h host, _ *lease.Lease) (err error) {
		for _, err = range h.List(t.Context(), "") {
			require.Error(t, err, "a listing without the permission")
		}
		return err
	}},
	"scan": {op: "Scan", do: func(t *testing.T, h host, _ *lease.Lease) (err error) {
		for _, err = range h.Scan(t.Context(), "") {
			require.Error(t, err, "a listing without the permission")
		}
		return err
	}},
	"load": {op: "GetItem", do: func(t *testing.T, h host, _ *lease.Lease) error {
		_, err := h.Load(t.Context(), "r")
		return err
	}},
	"swap": {op: "UpdateItem", do: func(t *testing.T, h host, _ *lease.Lease) error {
		_, err := h.Swap(t.Context(), lease.Record{Key: "r"}, nil, 0)
		return err
	}},
}

// keyDenied is what the service says of a table's key that may not be used.
const keyDenied = "KMS key access denied: not authorized to perform: kms:Decrypt on resource: arn:aws:kms:eu-west-1:123456789012:key/1"

// requireDenied wants a refusal that names the action and the table, and why, after few tries.
func requireDenied(t *testing.T, g *gate, err error, op, tab, why string) {
	t.Helper()
	requireClass(t, err, lease.ErrDenied)
	require.ErrorContains(t, err, op)
	require.ErrorContains(t, err, "allow the action on table "+tab)
	require.ErrorContains(t, err, why)
	tries := g.asked()["dynamodb:"+op+" "+tab]
	require.Positive(t, tries)
	require.LessOrEqual(t, tries, 3)
}

// TestDY09_DeniedAction: each operation is denied the action that it needs, and then every use of the table's key.
func TestDY09_DeniedAction(t *testing.T) {
	for name, st := range steps {
		run := func(name, says string, denied func(permission string) bool, op, why string) {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, g := newService(t), newGate()
					c := s.gated(t, g).client(t, nil)
					l, err := c.TryAcquire(t.Context(), "held")
					require.NoError(t, err)
					h := s.gated(t, g)
					if st.warm {
						_, err := h.Inspect(t.Context(), "held")
						require.NoError(t, err)
					}
					g.asked()
					g.deny(says, denied)
					requireDenied(t, g, st.do(t, h, l), op, table, why)
					g.deny("", nil)
					require.NoError(t, l.Err(), "the lease goes on")
					require.NoError(t, c.Close(t.Context()))
				})
			})
		}
		run(name, "", func(p string) bool { return p == "dynamodb:"+st.op+" "+table }, st.op, "perform: dynamodb:"+st.op)
		run(name+", key", keyDenied, func(string) bool { return true }, st.first(), "kms:Decrypt")
	}
}

func TestDY09_DeniedGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := newService(t), newGate()
		guard, err := dynamolock.NewGuard(s.sdk(g.wrap), "guarded", nil)
		require.NoError(t, err)
		for _, says := range []string{"", keyDenied} {
			g.deny(says, func(string) bool { return true })
			err := guard.Put(t.Context(), "k", []byte("v"), 7, "a")
			requireDenied(t, g, err, "UpdateItem", "guarded", says)
			_, err = guard.Get(t.Context(), "k")
			requireDenied(t, g, err, "GetItem", "guarded", says)
		}
	})
}

// TestDY09_DeniedAdmin: each action of the administrator's policy in turn.
func TestDY09_DeniedAdmin(t *testing.T) {
	for _, permission := range policy(t, "Administrator") {
		op, _, _ := strings.Cut(strings.TrimPrefix(permission, "dynamodb:"), " ")
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, g := newService(t), newGate()
				_, err := s.sdk(nil).DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: aws.String(table)})
				require.NoError(t, err)
				g.deny("", func(p string) bool { return p == permission })
				requireDenied(t, g, dynamolock.EnsureTable(t.Context(), s.sdk(g.wrap), table, everything), op, table, "")
				if slices.Contains(policy(t, "Checker"), permission) {
					requireDenied(t, g, dynamolock.CheckTable(t.Context(), s.sdk(g.wrap), table, nil), op, table, "")
				}
			})
		})
	}
}

// diary is an observer that remembers.
type diary struct {
	mu     sync.Mutex
	events []lease.Event
}

// Observe implements lease.Observer.
func (d *diary) Observe(e lease.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}

// of are the events of one kind so far.
func (d *diary) of(kind lease.EventKind) []lease.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.events), func(e lease.Event) bool { return e.Kind != kind })
}

// TestDY09_DeniedRenewals: from the third renewal on. The lease ends at its deadline, says why, and is not renewed again when the
// permission is back.
func TestDY09_DeniedRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g, told := newService(t), newGate(), &diary{}
		c := s.gated(t, g).client(t, &lease.Options{TTL: 6 * time.Second, Observer: told})
		l, err := c.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		g.asked()
		g.deny("", func(permission string) bool { return g.needed[permission] > 2 })
		for len(told.of(lease.Renewed)) < 2 {
			time.Sleep(100 * time.Millisecond)
		}
		renewed := time.Now()
		held, cancel := l.Context(t.Context())
		defer cancel()
		<-held.Done()
		require.ErrorIs(t, context.Cause(held), lease.ErrLost)
		require.LessOrEqual(t, time.Since(renewed), 6*time.Second, "within the TTL of the last good renewal")
		requireClass(t, l.Err(), lease.ErrLost)
		for _, part := range []string{"access denied", "UpdateItem", "table locks"} {
			require.ErrorContains(t, l.Err(), part)
		}
		tries := g.asked()["dynamodb:UpdateItem "+table] - 2
		require.Greater(t, tries, 2, "tried again until the deadline")
		require.LessOrEqual(t, tries, 6*5, "at most five times a second")
		failed := told.of(lease.RenewFailed)
		require.NotEmpty(t, failed)
		for _, e := range failed {
			requireClass(t, e.Err, lease.ErrDenied)
		}

		g.deny("", nil)
		time.Sleep(10 * time.Second)
		require.ErrorIs(t, l.Err(), lease.ErrLost)
		require.Len(t, told.of(lease.Renewed), 2)
		again, err := c.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		require.Greater(t, again.Token(), l.Token())
		require.NoError(t, c.Close(t.Context()))
	})
}

// TestDY09_DeniedRelease: the error says until when the lock stays, which is when the next can have it.
func TestDY09_DeniedRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g, told := newService(t), newGate(), &diary{}
		c := s.gated(t, g).client(t, &lease.Options{TTL: 6 * time.Second, Observer: told})
		l, err := c.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		until := l.Grant().Expires
		g.asked()
		g.deny("", func(string) bool { return true })
		err = l.Release(t.Context())
		requireDenied(t, g, err, "UpdateItem", table, "")
		require.ErrorContains(t, err, "the lock stays until its lease ends, "+until.UTC().Format(time.RFC3339Nano))
		g.deny("", nil)
		other := s.host(t, nil).client(t, nil)
		next, err := other.Acquire(t.Context(), "x")
		require.NoError(t, err)
		require.WithinRange(t, time.Now(), until, until.Add(3*time.Second))
		require.Greater(t, next.Token(), l.Token())
		require.NoError(t, other.Close(t.Context()))

		err = c.Do(t.Context(), "x", func(context.Context, *lease.Lease) error {
			g.deny("", func(string) bool { return true })
			return nil
		})
		require.NoError(t, err, "the work is done")
		failed := told.of(lease.ReleaseFailed)
		require.Len(t, failed, 2)
		require.ErrorContains(t, failed[1].Err, "the lock stays until")
		require.NoError(t, c.Close(t.Context()))
	})
}
