package settlement_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/functions/internal/settlement"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
	"github.com/cloudlease/cloudlease/singleton"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// book is payments by day.
type book map[string][]settlement.Payment

var errBook = errors.New("the book is closed")

func (b book) Day(_ context.Context, day string) iter.Seq2[settlement.Payment, error] {
	return func(yield func(settlement.Payment, error) bool) {
		for _, p := range b[day] {
			var err error
			if p.ID == "unreadable" {
				err = errBook
			}
			if !yield(p, err) {
				return
			}
		}
	}
}

var payments = book{"2026-03-01": {{"a", 100, "EUR"}, {"b", 250, "EUR"}, {"c", 0, "EUR"}}}

// office is one host that settles.
type office struct {
	client *lease.Client
	job    *singleton.Job
	s      *settlement.Settlement
	logs   bytes.Buffer
}

func open(t *testing.T, store *memlease.Store, b book, results fence.Guard, pace time.Duration) *office {
	t.Helper()
	o := &office{}
	var err error
	o.client, err = lease.New(store, &lease.Options{TTL: 3 * time.Second, Observer: lease.ObserverFunc(func(lease.Event) {})})
	require.NoError(t, err)
	o.job, err = singleton.New(o.client, "settlement", nil)
	require.NoError(t, err)
	o.s, err = settlement.New(b, results, &settlement.Options{Pace: pace, Logger: slog.New(slog.NewJSONHandler(&o.logs, nil))})
	require.NoError(t, err)
	return o
}

func (o *office) settle(t *testing.T, at time.Time) (r settlement.Report, res singleton.Result, err error) {
	t.Helper()
	res, err = o.job.Run(t.Context(), at, func(ctx context.Context, _ *lease.Lease) (err error) {
		r, err = o.s.Handle(ctx)
		return err
	})
	return r, res, err
}

func inBubble(t *testing.T, test func(t *testing.T, at time.Time)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		at := time.Date(2026, 3, 2, 0, 5, 0, 0, time.UTC)
		time.Sleep(time.Until(at))
		test(t, at)
	})
}

func TestSettlesTheDayBefore(t *testing.T) {
	inBubble(t, func(t *testing.T, at time.Time) {
		store := memlease.New()
		o := open(t, store, payments, store.Guard(), 0)
		r, res, err := o.settle(t, at)
		require.NoError(t, err)
		require.Equal(t, settlement.Report{
			Day: "2026-03-01", Count: 3, TotalCents: 350, Currency: "EUR", Occurrence: "2026-03-02T00:05:00Z", Token: res.Token,
		}, r)
		have, err := store.Guard().Get(t.Context(), settlement.Key("2026-03-01"))
		require.NoError(t, err)
		require.Equal(t, res.Token, have.Token)
		require.Equal(t, o.client.Holder(), have.Holder)
		require.JSONEq(t, `{"day":"2026-03-01","count":3,"total_cents":350,"currency":"EUR","occurrence":"2026-03-02T00:05:00Z","token":1}`,
			string(have.Value))
		require.Equal(t, 1, strings.Count(o.logs.String(), "settlement reading"))
		require.Equal(t, 1, strings.Count(o.logs.String(), "settlement writing"))
	})
}

func TestDayOf(t *testing.T) {
	for text, day := range map[string]string{
		"2026-03-02T00:00:00Z":      "2026-03-01",
		"2026-03-02T23:59:59Z":      "2026-03-01",
		"2026-03-02T00:30:00+02:00": "2026-02-28",
		"2024-03-01T06:00:00Z":      "2024-02-29",
		"2026-01-01T00:05:00Z":      "2025-12-31",
	} {
		at, err := singleton.ParseOccurrence(text)
		require.NoError(t, err)
		require.Equal(t, day, settlement.DayOf(at), text)
	}
}

func TestAnEmptyDay(t *testing.T) {
	inBubble(t, func(t *testing.T, at time.Time) {
		store := memlease.New()
		r, _, err := open(t, store, nil, store.Guard(), 0).settle(t, at)
		require.NoError(t, err)
		require.Equal(t, "2026-03-01", r.Day)
		require.Zero(t, r.Count)
		require.Empty(t, r.Currency)
	})
}

func TestRefusesWhatItCannotAddUp(t *testing.T) {
	for name, c := range map[string]struct {
		day  []settlement.Payment
		says string
	}{
		"two currencies":  {[]settlement.Payment{{"a", 1, "EUR"}, {"b", 1, "USD"}}, "USD"},
		"no currency":     {[]settlement.Payment{{"a", 1, ""}}, "no currency"},
		"negative amount": {[]settlement.Payment{{"a", -1, "EUR"}}, "negative"},
		"too much":        {[]settlement.Payment{{"a", math.MaxInt64, "EUR"}, {"b", 1, "EUR"}}, "64 bits"},
		"unreadable":      {[]settlement.Payment{{"a", 1, "EUR"}, {"unreadable", 1, "EUR"}}, "closed"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, at time.Time) {
				store := memlease.New()
				_, res, err := open(t, store, book{"2026-03-01": c.day}, store.Guard(), 0).settle(t, at)
				require.ErrorContains(t, err, c.says)
				require.Equal(t, singleton.Failed, res.Outcome)
				have, err := store.Guard().Get(t.Context(), settlement.Key("2026-03-01"))
				require.NoError(t, err)
				require.Zero(t, have.Token, "nothing was written")
			})
		})
	}
}

// TestPP01_PausedBeforeTheWrite: the first run stops right before its write and loses its lease; a second one settles the day;
// the first wakes and writes. With the fence its write is refused, without it replaces the newer result.
func TestPP01_PausedBeforeTheWrite(t *testing.T) {
	for _, fenced := range []bool{true, false} {
		inBubble(t, func(t *testing.T, at time.Time) {
			service := memlease.NewService()
			wake := make(chan struct{}) // closed when the first host goes on
			frozen := service.Store(&memlease.Options{Intercept: func(_ context.Context, op string, do func() error) error {
				if op == "renew" {
					return errors.New("this host stands still")
				}
				return do()
			}})
			results := fence.Guard(frozen.Guard())
			if !fenced {
				results = settlement.Unfenced(results)
			}
			first := open(t, frozen, payments, stopped{results, wake}, 0)
			var res singleton.Result
			var err error
			var wg sync.WaitGroup
			wg.Go(func() { _, res, err = first.settle(t, at) })
			time.Sleep(time.Minute)

			more := book{"2026-03-01": append(payments["2026-03-01"], settlement.Payment{ID: "late", Cents: 1, Currency: "EUR"})}
			store := service.Store(nil)
			r, next, nextErr := open(t, store, more, store.Guard(), 0).settle(t, at)
			require.NoError(t, nextErr)
			require.EqualValues(t, 351, r.TotalCents)
			close(wake)
			wg.Wait()

			have, getErr := store.Guard().Get(t.Context(), settlement.Key("2026-03-01"))
			require.NoError(t, getErr)
			var stored settlement.Report
			require.NoError(t, json.Unmarshal(have.Value, &stored))
			require.Greater(t, next.Token, res.Token)
			if fenced {
				require.ErrorIs(t, err, lease.ErrStale)
				require.Equal(t, singleton.Refused, res.Outcome)
				require.Equal(t, r, stored)
			} else {
				require.ErrorIs(t, err, lease.ErrLost)
				require.Equal(t, res.Token, stored.Token, "the older run has replaced the newer one's result")
				require.EqualValues(t, 350, stored.TotalCents)
			}
		})
	}
}

// stopped is a guard whose host stands still before each write until it is woken.
type stopped struct {
	fence.Guard
	wake <-chan struct{}
}

func (s stopped) Put(ctx context.Context, key string, value []byte, token lease.Token, holder string) error {
	<-s.wake
	return s.Guard.Put(context.WithoutCancel(ctx), key, value, token, holder)
}

// The write does not hang on the invocation: a sum that is there is sent.
func TestTheWriteOutlivesTheContext(t *testing.T) {
	inBubble(t, func(t *testing.T, at time.Time) {
		store := memlease.New()
		o := open(t, store, payments, store.Guard(), time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond) // three payments, then within the pause
		defer cancel()
		_, err := o.job.Run(ctx, at, func(ctx context.Context, _ *lease.Lease) error {
			_, err := o.s.Handle(ctx)
			return err
		})
		require.NoError(t, err)
		require.Equal(t, 3, strings.Count(o.logs.String(), "settlement reading"), "with a pace every payment is marked")
		require.Equal(t, 4*time.Second, time.Since(at))
	})
}

// Reading ends with the context.
func TestPaceObeysTheContext(t *testing.T) {
	inBubble(t, func(t *testing.T, at time.Time) {
		store := memlease.New()
		o := open(t, store, payments, store.Guard(), time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		_, err := o.job.Run(ctx, at, func(ctx context.Context, _ *lease.Lease) error {
			_, err := o.s.Handle(ctx)
			return err
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1500*time.Millisecond, time.Since(at))
		require.NotContains(t, o.logs.String(), "settlement writing")
	})
}

// A write whose answer is lost is sent again with the same token; a store that never answers is an error in the end.
func TestWriteInDoubt(t *testing.T) {
	for lost, wantErr := range map[int]bool{1: false, 2: false, 3: true} {
		inBubble(t, func(t *testing.T, at time.Time) {
			store := memlease.New()
			n := 0
			results := store
			guard := lossy{results.Guard(), &n, lost}
			_, _, err := open(t, store, payments, guard, 0).settle(t, at)
			require.Equal(t, wantErr, err != nil, err)
			if wantErr {
				require.ErrorIs(t, err, lease.ErrInDoubt)
			}
		})
	}
}

// lossy loses the first answers.
type lossy struct {
	fence.Guard
	n    *int
	lose int
}

func (l lossy) Put(ctx context.Context, key string, value []byte, token lease.Token, holder string) error {
	err := l.Guard.Put(ctx, key, value, token, holder)
	if *l.n++; *l.n <= l.lose {
		return &lease.Error{Op: "put", Class: lease.ErrInDoubt, Name: key}
	}
	return err
}

func TestBadArguments(t *testing.T) {
	store := memlease.New()
	_, err := settlement.New(nil, store.Guard(), nil)
	require.ErrorIs(t, err, lease.ErrInvalid)
	_, err = settlement.New(payments, nil, nil)
	require.ErrorIs(t, err, lease.ErrInvalid)
	_, err = settlement.New(payments, store.Guard(), &settlement.Options{Pace: -1})
	require.ErrorIs(t, err, lease.ErrInvalid)
	s, err := settlement.New(payments, store.Guard(), nil)
	require.NoError(t, err)
	_, err = s.Handle(t.Context())
	require.ErrorIs(t, err, lease.ErrInvalid, "not under a lease")
}
