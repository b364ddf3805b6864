package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/functions/internal/settlement"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
	"github.com/cloudlease/cloudlease/singleton"
)

// These tests are about time, in virtual time: what the handler does is the same on every store.

const virtualLimit = 5 * time.Minute // as in host.json: 290 s are left for a run, 145 s for waiting

// inBubble opens a bubble at the occurrence that due names.
func inBubble(t *testing.T, test func(t *testing.T, s *memlease.Service)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		at, err := time.Parse(time.RFC3339, due)
		require.NoError(t, err)
		time.Sleep(time.Until(at))
		test(t, memlease.NewService())
	})
}

func virtual(t *testing.T, store lease.Store, body func(context.Context) (settlement.Report, error)) *handler {
	t.Helper()
	client, err := lease.New(store, &lease.Options{Observer: lease.ObserverFunc(func(lease.Event) {})})
	require.NoError(t, err)
	left := virtualLimit - reserveOf(virtualLimit)
	job, err := singleton.New(client, "settlement", &singleton.Options{Wait: left / 2})
	require.NoError(t, err)
	return &handler{client: client, job: job, body: body, left: left, zone: "UTC"}
}

func (h *handler) deliver(ctx context.Context) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.routes().ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodPost, "/"+function, strings.NewReader(invocation(timer(due)))))
	return rec
}

func ends(ctx context.Context) (settlement.Report, error) {
	<-ctx.Done()
	return settlement.Report{}, context.Cause(ctx)
}

func runs(context.Context) (settlement.Report, error) {
	return settlement.Report{Day: "2026-03-01"}, nil
}

// TestSF05e_TheBodyEndsBeforeTheHostGivesUp: by the reserve, to the second.
func TestSF05e_TheBodyEndsBeforeTheHostGivesUp(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memlease.Service) {
		began := time.Now()
		h := virtual(t, s.Store(nil), ends)
		rec := h.deliver(t.Context())
		require.Equal(t, http.StatusInternalServerError, rec.Code)
		require.Contains(t, rec.Body.String(), "functionTimeout is near")
		require.Equal(t, 290*time.Second, time.Since(began))
		info, err := h.client.Inspect(t.Context(), "settlement")
		require.NoError(t, err)
		require.Equal(t, lease.Free, info.State, "released before the answer")
	})
}

// TestSF05d_WaitingNearTheDeadline: whoever waits in vain says so in time.
func TestSF05d_WaitingNearTheDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memlease.Service) {
		holder := virtual(t, s.Store(nil), ends)
		holder.left = time.Hour
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan int, 1)
		go func() { done <- holder.deliver(ctx).Code }()
		synctest.Wait()
		began := time.Now()
		rec := virtual(t, s.Store(nil), runs).deliver(t.Context())
		require.Equal(t, http.StatusConflict, rec.Code)
		require.Equal(t, 145*time.Second, time.Since(began))
		stop()
		require.Equal(t, http.StatusInternalServerError, <-done)
	})
}

// TestSF10_ADuplicateOfALivingRun ends as already done, within the same invocation.
func TestSF10_ADuplicateOfALivingRun(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memlease.Service) {
		living := virtual(t, s.Store(nil), func(ctx context.Context) (settlement.Report, error) {
			time.Sleep(5 * time.Second)
			return runs(ctx)
		})
		done := make(chan int, 1)
		go func() { done <- living.deliver(t.Context()).Code }()
		synctest.Wait()
		time.Sleep(2 * time.Second)
		rec := virtual(t, s.Store(nil), ends).deliver(t.Context())
		require.Equal(t, http.StatusOK, rec.Code)
		require.Contains(t, rec.Body.String(), `"ReturnValue":"already-done"`)
		require.Equal(t, http.StatusOK, <-done)
	})
}

// A run whose end could not be recorded was a success, and the log says what is missing.
func TestNotRecorded(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memlease.Service) {
		logs := capture(t)
		rec := virtual(t, deaf{s.Store(nil)}, runs).deliver(t.Context())
		require.Equal(t, http.StatusOK, rec.Code)
		require.Contains(t, rec.Body.String(), `"day":"2026-03-01"`)
		require.Contains(t, logs.String(), "not recorded")
		require.Contains(t, logs.String(), "WARN")
	})
}

// deaf is a store that does not answer releases.
type deaf struct{ *memlease.Store }

func (deaf) Release(context.Context, lease.Grant, lease.Final) error {
	return &lease.Error{Op: "release", Class: lease.ErrInDoubt, Err: errors.New("the connection was cut")}
}

// A panic cuts the connection, which the host counts as a failure; the lock is free.
func TestPanic(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memlease.Service) {
		h := virtual(t, s.Store(nil), func(context.Context) (settlement.Report, error) { panic("boom") })
		require.PanicsWithValue(t, "boom", func() { h.deliver(t.Context()) })
		rec := virtual(t, s.Store(nil), runs).deliver(t.Context())
		require.Equal(t, http.StatusOK, rec.Code)
		require.Contains(t, rec.Body.String(), `"outcome":"ran"`)
	})
}
