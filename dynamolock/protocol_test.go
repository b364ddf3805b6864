package dynamolock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/lease"
)

func (s *service) item(t *testing.T, name string) map[string]map[string]any {
	t.Helper()
	return s.raw(t, table, map[string]string{"name": name})
}

func (s *service) putItem(t *testing.T, item map[string]map[string]any) {
	t.Helper()
	s.call(t, "PutItem", map[string]any{"TableName": table, "Item": item}, nil)
}

func (s *service) deleteItem(t *testing.T, name string) {
	t.Helper()
	s.call(t, "DeleteItem", map[string]any{"TableName": table, "Key": map[string]any{"name": map[string]string{"S": name}}}, nil)
}

func number(t *testing.T, item map[string]map[string]any, attr string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(fmt.Sprint(item[attr]["N"]), 10, 64)
	require.NoError(t, err, "attribute %s of %v", attr, item)
	return n
}

func try(t *testing.T, h host, name, attempt string) lease.Grant {
	t.Helper()
	r := request(name)
	r.Attempt = attempt
	r.Since = h.Clock()()
	g, err := h.TryAcquire(t.Context(), r)
	require.NoError(t, err)
	return g
}

// TestTokensAreAheadOfDeletedRecords: a record begins 5 s ahead of the latest that the service's clock can say.
func TestTokensAreAheadOfDeletedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		b := s.host(t, nil)
		first := try(t, s.host(t, nil), "x", "1")
		require.Greater(t, int64(first.Token), time.Now().Add(4*time.Second).UnixMilli())
		for i := range 50 { // each grant in the same millisecond or so, by hosts that know nothing of each other
			s.deleteItem(t, "x")
			time.Sleep(6 * time.Second)
			g := try(t, b, "x", fmt.Sprint(i))
			require.Greater(t, g.Token, first.Token)
			first, b = g, s.host(t, nil)
		}
	})
}

// TestTokensAfterARestore: the table comes back as it was an hour ago.
func TestTokensAfterARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		a := s.host(t, nil)
		g := try(t, a, "x", "1")
		require.NoError(t, a.Release(t.Context(), g, lease.Final{}))
		old := s.item(t, "x")
		var last lease.Token
		for i := range 20 {
			time.Sleep(3 * time.Minute)
			g := try(t, a, "x", fmt.Sprint("again", i))
			require.Greater(t, g.Token, last)
			last = g.Token
			require.NoError(t, a.Release(t.Context(), g, lease.Final{}))
		}
		s.putItem(t, old)
		time.Sleep(2 * time.Second)
		require.Greater(t, try(t, s.host(t, nil), "x", "restored").Token, last)
	})
}

// TestEndsNeverMoveBack: a renewal by a host that believes it is earlier keeps the later end.
func TestEndsNeverMoveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		time.Sleep(time.Hour) // a Date before 2000 is garbage, and a bubble begins there
		a := s.host(t, nil)
		g := try(t, a, "x", "1")
		later, err := a.Renew(t.Context(), g)
		require.NoError(t, err)
		time.Sleep(1500 * time.Millisecond)
		latest, err := a.Renew(t.Context(), later)
		require.NoError(t, err)
		end := number(t, s.item(t, "x"), "expires")
		s.offset = -2 * time.Second // the answers come from a front end that is behind
		_, err = a.Inspect(t.Context(), "x")
		require.NoError(t, err)
		again, err := a.Renew(t.Context(), g)
		require.NoError(t, err)
		require.GreaterOrEqual(t, number(t, s.item(t, "x"), "expires"), end)
		require.GreaterOrEqual(t, again.Expires.UnixMilli(), end)
		require.Equal(t, latest.Token, again.Token)
	})
}

// TestDeadOnlyASecondPastTheEnd: a lease is not taken while its holder trusts it, although front ends differ by up to a second
// and a Date tells the second only, whatever its fraction; and it is taken in time.
func TestDeadOnlyASecondPastTheEnd(t *testing.T) {
	for _, ahead := range []time.Duration{0, 500 * time.Millisecond, time.Second} {
		for _, phase := range []time.Duration{0, 300 * time.Millisecond, 600 * time.Millisecond, 990 * time.Millisecond} {
			t.Run(fmt.Sprint(ahead, phase), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { deadInTime(t, ahead, phase) })
			})
		}
	}
}

func deadInTime(t *testing.T, ahead, phase time.Duration) {
	t.Helper()
	s := newService(t)
	time.Sleep(phase)
	began := time.Now()
	g := crash(t, s, "x", 3*time.Second)
	s.offset = ahead // the thief talks to a front end that is ahead
	b := s.host(t, nil)
	for {
		r := request("x")
		r.Attempt = time.Now().String()
		got, err := b.TryAcquire(t.Context(), r)
		if err == nil {
			require.Greater(t, got.Token, g.Token)
			break
		}
		require.ErrorIs(t, err, lease.ErrHeld)
		time.Sleep(10 * time.Millisecond)
	}
	took := time.Since(began)
	require.Greater(t, took, g.Trust, "the holder's own trust is over")
	require.LessOrEqual(t, took, 3*time.Second+3*time.Second)
}

// TestForeignEndsAreWatched: an end that no client can have written is neither believed for ever nor taken at once.
func TestForeignEndsAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		g := crash(t, s, "x", 3*time.Second)
		it := s.item(t, "x")
		it["expires"] = map[string]any{"N": fmt.Sprint(time.Now().Add(1000 * time.Hour).UnixMilli())}
		s.putItem(t, it)
		b := s.host(t, nil)
		c := b.client(t, &lease.Options{TTL: 3 * time.Second})
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		l, err := c.Acquire(ctx, "x")
		require.NoError(t, err)
		require.Greater(t, l.Token(), g.Token)
		require.GreaterOrEqual(t, time.Since(began), 3*time.Second)
		require.Less(t, time.Since(began), 9*time.Second)
		require.NoError(t, c.Close(t.Context()))
	})
}

// TestWatchingEndsWithAFreeze: the time that a machine was suspended does not count as time in which a record stayed unchanged,
// because nobody looked.
func TestWatchingEndsWithAFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		crash(t, s, "x", 3*time.Second)
		it := s.item(t, "x")
		it["expires"] = map[string]any{"N": fmt.Sprint(time.Now().Add(1000 * time.Hour).UnixMilli())}
		s.putItem(t, it)
		var suspended time.Duration
		h := s.host(t, &dynamolock.Options{Clock: func() lease.Reading {
			r := lease.SystemClock()
			r.Wall = r.Wall.Add(suspended)
			return r
		}})
		tryAgain := func() error {
			r := request("x")
			r.Since = h.Clock()()
			_, err := h.TryAcquire(t.Context(), r)
			return err
		}
		require.ErrorIs(t, tryAgain(), lease.ErrHeld)
		suspended = time.Hour
		require.ErrorIs(t, tryAgain(), lease.ErrHeld, "taken after a freeze")
		time.Sleep(3 * time.Second)
		require.ErrorIs(t, tryAgain(), lease.ErrHeld)
		time.Sleep(time.Second)
		require.NoError(t, tryAgain(), "watched for its TTL and a tenth")
	})
}

// TestForeignItems: an item of somebody else's gives a clear error, never a grant, and stays as it was.
func TestForeignItems(t *testing.T) {
	n := func(v any) map[string]any { return map[string]any{"N": fmt.Sprint(v)} }
	str := func(v string) map[string]any { return map[string]any{"S": v} }
	for attr, bad := range map[string]map[string]any{
		"version":  n("9007199254740992"),
		"expires":  str("soon"),
		"ttl":      n(0),
		"holder":   nil, // missing
		"nonce":    {"BOOL": true},
		"started":  n(-1),
		"running":  n("1.5"),
		"finished": str(""),
		"since":    {"NULL": true},
	} {
		t.Run(attr, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t)
				crash(t, s, "x", 3*time.Second)
				it := s.item(t, "x")
				if it[attr] = bad; bad == nil {
					delete(it, attr)
				}
				s.putItem(t, it)
				h := s.host(t, nil)
				for range 2 { // cold and warm
					_, err := h.TryAcquire(t.Context(), request("x"))
					requireClass(t, err, lease.ErrMisconfigured)
					require.ErrorContains(t, err, attr)
				}
				_, err := h.Inspect(t.Context(), "x")
				requireClass(t, err, lease.ErrMisconfigured)
				require.Equal(t, it, s.item(t, "x"))
			})
		})
	}
}

// mute is an engine that does not return the item that made a condition fail.
func mute(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err != nil || resp.StatusCode == http.StatusOK {
			return resp, err
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return nil, err
		}
		var fault map[string]any
		if err := json.Unmarshal(body, &fault); err != nil {
			return nil, err
		}
		delete(fault, "Item")
		if body, err = json.Marshal(fault); err != nil {
			return nil, err
		}
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
		return resp, nil
	})
}

// TestMuteEngine: engines that know nothing of ReturnValuesOnConditionCheckFailure cost one read more, once found out.
func TestMuteEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		c := &counter{}
		st, err := dynamolock.New(s.sdk(func(next http.RoundTripper) http.RoundTripper { return c.wrap(mute(next)) }), table, nil)
		require.NoError(t, err)
		h := host{st, c}
		g := try(t, h, "x", "1")
		require.Equal(t, "RW", c.take())
		_, err = st.TryAcquire(t.Context(), request("x"))
		require.ErrorIs(t, err, lease.ErrHeld)
		require.Equal(t, "WWR", c.take(), "found out")
		_, err = st.TryAcquire(t.Context(), request("x"))
		require.ErrorIs(t, err, lease.ErrHeld)
		require.Equal(t, "WR", c.take())
		g, err = st.Renew(t.Context(), g)
		require.NoError(t, err)
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}))
		require.NoError(t, st.Release(t.Context(), g, lease.Final{}), "known again by its nonce")
		next := try(t, h, "x", "2")
		require.Greater(t, next.Token, g.Token)
		require.ErrorIs(t, st.Release(t.Context(), g, lease.Final{}), lease.ErrLost)
		_, err = st.Renew(t.Context(), g)
		require.ErrorIs(t, err, lease.ErrLost)
	})
}

// TestItemDeletedWhileHeld: the holder learns it at its next renewal and makes no new item.
func TestItemDeletedWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		a := s.host(t, nil)
		c := a.client(t, &lease.Options{TTL: 3 * time.Second})
		l, err := c.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		time.Sleep(2 * time.Second) // the clock's uncertainty
		s.deleteItem(t, "x")
		select {
		case <-l.Done():
		case <-time.After(2 * time.Second):
			require.Fail(t, "the loss was not noticed at the next renewal")
		}
		require.ErrorIs(t, l.Err(), lease.ErrLost)
		require.ErrorContains(t, l.Err(), "gone")
		require.ErrorIs(t, l.Release(t.Context()), lease.ErrLost)
		require.Empty(t, s.item(t, "x"))
		b := s.host(t, nil)
		require.Greater(t, try(t, b, "x", "2").Token, l.Token())
		require.NoError(t, c.Close(t.Context()))
	})
}
