//go:build unix

package check_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/e2e/torture/check"
	"github.com/cloudlease/cloudlease/e2e/torture/history"
)

var rules = check.Rules{Bound: 9 * time.Second, Settle: 3 * time.Second, Delay: 3 * time.Second, Late: time.Minute}

const ms = time.Millisecond

func millis(n int) time.Duration { return time.Duration(n) * ms }

// tale is a history that is told event by event, in milliseconds.
type tale []history.Event

func (h *tale) add(at int, worker string, kind history.Kind, e history.Event) {
	e.At, e.Worker, e.Life, e.Kind, e.Lock = millis(at), worker, 1, kind, "lock"
	*h = append(*h, e)
}

// hold tells of a lease from a grant to its release, 0 if there is none, which is trusted until a deadline.
func (h *tale) hold(worker string, token uint64, granted, until, left int) {
	mine := history.Event{Token: token, Holder: worker}
	h.add(granted-500, worker, history.Waiting, history.Event{})
	grant := mine
	grant.Sent, grant.Until = millis(granted-10), millis(until)
	h.add(granted, worker, history.Granted, grant)
	h.add(granted+1, worker, history.Acted, mine)
	if left != 0 {
		h.add(left, worker, history.Leaving, mine)
		h.add(left+5, worker, history.Released, mine)
	}
}

// put tells of a guarded write.
func (h *tale) put(worker string, op int, token uint64, called, back int, o history.Outcome) {
	e := history.Event{Token: token, Holder: worker, Op: op, Value: fmt.Sprintf("%s-%d", worker, op)}
	h.add(called, worker, history.PutCall, e)
	if back != 0 {
		e.Outcome = o
		h.add(back, worker, history.PutBack, e)
	}
}

// get tells of a guarded read of what a put wrote; op 0: of nothing.
func (h *tale) get(worker string, op, called, back int, from string, put int, token uint64) {
	e := history.Event{Op: op}
	h.add(called, worker, history.GetCall, e)
	e.Outcome = history.Done
	if put != 0 {
		e.Token, e.Holder, e.Value = token, from, fmt.Sprintf("%s-%d", from, put)
	}
	h.add(back, worker, history.GetBack, e)
}

// sound is a history in which all is well: a release, a killed holder, a stopped holder whose write is refused.
func sound() tale {
	var h tale
	h.hold("a", 10, 1000, 4000, 2000)
	h.put("a", 1, 10, 1100, 1110, history.Done)
	h.get("b", 1, 1050, 1120, "a", 1, 10)
	h.hold("b", 11, 2500, 5500, 0) // killed
	h.put("b", 2, 11, 2600, 0, "")
	h.hold("c", 15, 8000, 11000, 10500)
	h.get("c", 1, 8100, 8110, "b", 2, 11) // what nobody was told had been done
	h.put("c", 2, 15, 8200, 8210, history.Done)
	h.put("b", 3, 11, 8300, 8320, history.Refused)
	return h
}

func TestSound(t *testing.T) {
	rep := check.Check(sound(), rules)
	require.Empty(t, rep.Violations)
	require.Len(t, rep.Holds, 3)
	require.Equal(t, 2, rep.Reads)
	require.Equal(t, map[history.Outcome]int{history.Done: 2, history.Refused: 1, history.Unknown: 1}, rep.Writes)
	require.Len(t, rep.TakeOvers, 1)
	require.Equal(t, 5510*ms, rep.TakeOvers[0].Took, "from the last good renewal of the one that was killed")
	require.Equal(t, 510*ms, rep.TakeOvers[0].Able, "c asked for half a second; before that b waited for its own answer")
}

// The order in which events are given does not matter.
func TestOrder(t *testing.T) {
	h := sound()
	slices.Reverse(h)
	require.Empty(t, check.Check(h, rules).Violations)
}

func TestPlanted(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(h *tale)
		says  string
	}{
		"a grant while another trusts": {func(h *tale) {
			h.hold("d", 20, 10400, 13000, 12000)
		}, "two trusted it at once: c.1 with token 15"},
		"a renewal that reaches into the next grant": {func(h *tale) {
			h.add(5000, "b", history.Renewed, history.Event{Token: 11, Sent: 5000 * ms, Until: 8100 * ms})
		}, "two trusted it at once: b.1 with token 11"},
		"acts on a lease after its deadline": {func(h *tale) {
			h.add(8001, "b", history.Acted, history.Event{Token: 11})
		}, "two trusted it at once: b.1 with token 11"},
		"one token twice": {func(h *tale) {
			h.hold("d", 15, 11000, 13000, 12000)
		}, "one token was given twice: c.1 with token 15"},
		"a token that falls": {func(h *tale) {
			h.hold("d", 14, 11000, 13000, 12000)
		}, "the token fell: d.1 with token 14"},
		"a stale write": {func(h *tale) {
			h.put("b", 4, 11, 8400, 8410, history.Done)
		}, `a stale write was stored: put "b-4" with token 11`},
		"a write that is read and was refused": {func(h *tale) {
			h.get("d", 9, 8400, 8410, "b", 3, 11)
		}, "no order in which a fenced register could have done them"},
		"a write that is lost": {func(h *tale) {
			h.get("d", 9, 8400, 8410, "a", 1, 10)
		}, `a stale read of d: get "a-1" with token 10 of a: done after put "c-2" with token 15`},
		"an older write of the same holder": {func(h *tale) {
			h.put("c", 3, 15, 8300, 8310, history.Done)
			h.get("d", 9, 8400, 8410, "c", 2, 15)
		}, `a stale read of d: get "c-2" with token 15 of c: done after put "c-3" with token 15`},
		"a refusal without a reason": {func(h *tale) {
			h.put("d", 9, 20, 9000, 9010, history.Refused)
		}, "no order in which a fenced register could have done them"},
		"no progress": {func(h *tale) {
			h.add(11000, "d", history.Waiting, history.Event{})
			h.add(20600, "d", history.GaveUp, history.Event{})
		}, "nobody got it for 10.1 s after the last renewal or the release of c.1"},
		"a process found something": {func(h *tale) {
			h.add(9000, "d", history.Finding, history.Event{Err: "nonsense"})
		}, "d found: nonsense"},
		"something is left": {func(h *tale) {
			h.add(12000, "d", history.Stopped, history.Event{Err: "a goroutine"})
		}, "d ended and left behind: a goroutine"},
	} {
		t.Run(name, func(t *testing.T) {
			h := sound()
			c.plant(&h)
			rep := check.Check(h, rules)
			var says []string
			for _, v := range rep.Violations {
				says = append(says, v.What)
			}
			require.Contains(t, strings.Join(says, "\n"), c.says)
			require.LessOrEqual(t, len(says), 2, "a stale write is found by two checks: %q", says)
		})
	}
}

// What an honest campaign shows is no violation.
func TestAllowed(t *testing.T) {
	for name, plant := range map[string]func(h *tale){
		"a grant that is told too late to be trusted": func(h *tale) { // its process was stopped before it could write it down
			h.add(8500, "d", history.Granted, history.Event{Token: 13, Sent: 5600 * ms, Until: 8200 * ms})
		},
		"a deadline that a release cuts off": func(h *tale) {
			h.hold("d", 16, 10600, 13000, 12000)
		},
		"an unanswered write that is never done": func(h *tale) {
			h.put("d", 9, 20, 9000, 9500, history.Unknown)
			h.get("d", 10, 9600, 9610, "c", 2, 15)
		},
		"an unanswered write that is done late": func(h *tale) {
			h.put("d", 9, 20, 9000, 9500, history.Unknown)
			h.get("d", 10, 9600, 9610, "c", 2, 15)
			h.get("d", 11, 9700, 9710, "d", 9, 20)
		},
		"slow because a fault stands in the way": func(h *tale) {
			h.add(11000, "d", history.Waiting, history.Event{})
			h.add(12000, "d", history.Obstacle, history.Event{Until: 16000 * ms})
			h.add(20600, "d", history.GaveUp, history.Event{})
		},
		"slow because all are hindered": func(h *tale) {
			h.add(11000, "d", history.Waiting, history.Event{})
			h.add(12000, "", history.Obstacle, history.Event{Until: 16000 * ms})
			h.add(20600, "d", history.GaveUp, history.Event{})
		},
		"slow because a grant of unknown outcome has to end": func(h *tale) {
			h.add(11000, "e", history.Waiting, history.Event{})
			h.add(11500, "e", history.GaveUp, history.Event{Outcome: history.Unknown})
			h.add(11000, "d", history.Waiting, history.Event{})
			h.add(20600, "d", history.GaveUp, history.Event{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := sound()
			plant(&h)
			require.Empty(t, check.Check(h, rules).Violations)
		})
	}
}

// Where leases begin anew with a new leader, so does the bound.
func TestAnew(t *testing.T) {
	h := sound()
	h.add(11000, "d", history.Waiting, history.Event{})
	h.add(15000, "", history.Obstacle, history.Event{Until: 15100 * ms})
	h.add(26500, "d", history.GaveUp, history.Event{})
	require.NotEmpty(t, check.Check(h, rules).Violations)
	r := rules
	r.Anew = true
	require.Empty(t, check.Check(h, r).Violations)
}

// For a TTL after the service was set back two may trust one lock, and no longer.
func TestRestored(t *testing.T) {
	h := sound()
	h.hold("d", 20, 10400, 13000, 12000)
	r := rules
	r.TTL, r.Restored = 3*time.Second, []check.Stretch{{From: 7 * time.Second, Until: 8 * time.Second}}
	rep := check.Check(h, r)
	require.Empty(t, rep.Violations)
	require.Equal(t, 1, rep.Excused)
	r.Restored[0].Until = 7300 * ms
	require.NotEmpty(t, check.Check(h, r).Violations)
}

// Beyond the assumptions two may trust one lock; tokens and the fence hold.
func TestBeyond(t *testing.T) {
	h := sound()
	h.hold("d", 20, 10000, 13000, 0)
	r := rules
	r.Beyond = true
	require.NotEmpty(t, check.Check(h, rules).Violations)
	require.Empty(t, check.Check(h, r).Violations)
	for _, plant := range []func(h *tale){
		func(h *tale) { h.put("b", 4, 11, 8400, 8410, history.Done) },
		func(h *tale) { h.hold("e", 14, 11000, 13000, 0) },
	} {
		bad := slices.Clone(h)
		plant(&bad)
		require.NotEmpty(t, check.Check(bad, r).Violations)
	}
}

// A long history is checked in seconds, sound or not, also where many outcomes are unknown.
func TestLongHistory(t *testing.T) {
	long := func() tale {
		var h tale
		for n := range 3000 {
			at, token := 20*n, uint64(n/20+1)
			who := fmt.Sprintf("w%d", token%3)
			o := history.Done
			if n%5 == 0 {
				o = history.Unknown
			}
			h.put(who, 2*n, token, at, at+10, o)
			if n%5 != 0 {
				h.get("r", 2*n+1, at+11, at+15, who, 2*n, token)
			}
		}
		return h
	}
	began := time.Now()
	h := long()
	require.Empty(t, check.Check(h, rules).Violations)
	h.put("w1", 9000, 1, 59990, 59995, history.Done)
	h.get("r", 9001, 59996, 59999, "w1", 9000, 1)
	rep := check.Check(h, rules)
	require.GreaterOrEqual(t, len(rep.Violations), 2)
	require.Less(t, time.Since(began), time.Minute)
	for _, v := range rep.Violations {
		require.NotContains(t, v.What, "was found in")
	}
}
