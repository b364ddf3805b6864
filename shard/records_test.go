package shard_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
	"github.com/cloudlease/cloudlease/shard"
)

func TestRowsOfOthersAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":          ``,
		"no JSON":          `lock`,
		"another's JSON":   `{"leaseOwner":"w1","leaseCounter":7}`,
		"another format":   `{"v":2,"token":5}`,
		"no token":         `{"v":1}`,
		"a huge token":     `{"v":1,"token":9007199254740992}`,
		"a negative token": `{"v":1,"token":-1}`,
		"a negative slot":  `{"v":1,"token":5,"slot":-1,"worker":7}`,
		"half an owner":    `{"v":1,"token":5,"slot":3}`,
		"negative tries":   `{"v":1,"token":5,"tries":-2}`,
		"finished, owned":  `{"v":1,"token":5,"worker":7,"end":true}`,
		"two values":       `{"v":1,"token":5}{"v":1,"token":6}`,
		"a long position":  `{"v":1,"token":5,"at":"` + strings.Repeat("x", shard.MaxPosition+1) + `"}`,
		"nine parents":     `{"v":1,"token":5,"parents":["1","2","3","4","5","6","7","8","9"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := shard.CheckRow([]byte(text))
			require.ErrorContains(t, err, "was not written by this library")
		})
	}
	again, err := shard.CheckRow([]byte(`{"v":1,"token":9007199254740991,"slot":3,"worker":9007199254740991,"at":"49590338271490256608559692538361571095921575989136588898"}`))
	require.NoError(t, err)
	require.Contains(t, string(again), `"token":9007199254740991`, "exact")
}

func FuzzRow(f *testing.F) {
	f.Add([]byte(`{"v":1,"token":5,"slot":3,"worker":7,"parents":["a"],"at":"x","tries":2,"known":true}`))
	f.Add([]byte(`{"v":1,"token":5,"parked":{"by":"me","lost":true}}`))
	f.Fuzz(func(t *testing.T, v []byte) {
		again, err := shard.CheckRow(v)
		if err != nil {
			return
		}
		twice, err := shard.CheckRow(again)
		require.NoError(t, err)
		require.JSONEq(t, string(again), string(twice))
	})
}

func TestRostersOfOthersAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":          `x`,
		"another format":   `{"v":9,"members":[]}`,
		"out of order":     `{"v":1,"members":["3:a:0:0:x","2:b:0:0:x"]}`,
		"twice":            `{"v":1,"members":["3:a:0:0:x","3:b:0:0:x"]}`,
		"too few fields":   `{"v":1,"members":["3:a:0"]}`,
		"no token":         `{"v":1,"members":["3:0:0:0:x"]}`,
		"a huge token":     `{"v":1,"members":["3:zzzzzzzzzzzz:0:0:x"]}`,
		"no number":        `{"v":1,"members":["three:a:0:0:x"]}`,
		"a negative quota": `{"v":1,"members":["3:a:-1:0:x"]}`,
		"a huge slot":      `{"v":1,"members":["4096:a:0:0:x"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := shard.CheckRoster([]byte(text))
			require.ErrorContains(t, err, "was not written by this library")
		})
	}
	again, slots, err := shard.CheckRoster([]byte(`{"v":1,"bell":2,"settling":true,"members":["0:a:3:0:x:y","17:zz:1:5:"]}`))
	require.NoError(t, err)
	require.Equal(t, []int{0, 17}, slots)
	require.JSONEq(t, `{"v":1,"bell":2,"settling":true,"members":["0:a:3:0:x:y","17:zz:1:5:"]}`, string(again))
}

func FuzzRoster(f *testing.F) {
	f.Add([]byte(`{"v":1,"bell":2,"members":["0:a:3:0:x","17:zz:1:5:y"]}`))
	f.Fuzz(func(t *testing.T, v []byte) {
		again, _, err := shard.CheckRoster(v)
		if err != nil {
			return
		}
		twice, _, err := shard.CheckRoster(again)
		require.NoError(t, err)
		require.JSONEq(t, string(again), string(twice))
	})
}

func TestTokens(t *testing.T) {
	token := shard.Seeded(5)
	for range shard.MaxCount {
		next := shard.NextToken(token)
		require.Equal(t, token+1, next)
		token = next
	}
	require.Zero(t, shard.NextToken(token), "the count is used up")
	require.Less(t, token, shard.Seeded(6), "the next seed is above")
	most := lease.MaxToken >> 11
	require.NoError(t, shard.CheckSeed(most))
	require.Error(t, shard.CheckSeed(most+1))
	require.LessOrEqual(t, shard.Seeded(most)+shard.MaxCount, lease.MaxToken)
}

func TestReasonsAreCut(t *testing.T) {
	require.Equal(t, "short", shard.Reason("short"))
	long := shard.Reason(strings.Repeat("ä", 300))
	require.LessOrEqual(t, len(long), 200)
	require.True(t, utf8.ValidString(long))
	_, err := json.Marshal(shard.Reason("\xff"))
	require.NoError(t, err)
}

func TestLists(t *testing.T) {
	info := func(id string, parents ...string) shard.Info { return shard.Info{ID: id, Parents: parents} }
	for name, c := range map[string]struct {
		list []shard.Info
		want string
	}{
		"empty":                  {nil, ""},
		"split and merge":        {[]shard.Info{info("p"), info("a", "p"), info("b", "p"), info("m", "a", "b")}, ""},
		"a parent that is gone":  {[]shard.Info{info("a", "gone")}, ""},
		"twice":                  {[]shard.Info{info("a"), info("b"), info("a")}, `the shard "a" twice`},
		"no id":                  {[]shard.Info{info("")}, "id is empty"},
		"a control character":    {[]shard.Info{info("a\n")}, "is not the end of a record's key"},
		"too long":               {[]shard.Info{info(strings.Repeat("x", 255))}, "is not the end of a record's key"},
		"its own parent":         {[]shard.Info{info("a", "a")}, "parents of each other"},
		"a cycle":                {[]shard.Info{info("x"), info("a", "c"), info("b", "a"), info("c", "b", "x")}, "parents of each other"},
		"a bad parent":           {[]shard.Info{info("a", "")}, "a parent of"},
		"nine parents":           {[]shard.Info{info("a", "1", "2", "3", "4", "5", "6", "7", "8", "9")}, "9 parents"},
		"two ways to one parent": {[]shard.Info{info("p"), info("a", "p"), info("b", "p"), info("m", "a", "b", "p")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := shard.CheckList(c.list)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.ErrorContains(t, err, c.want)
		})
	}
	require.Equal(t, []string{"a", "b", "c"}, shard.FindCycle(map[string][]string{"a": {"c"}, "b": {"a"}, "c": {"x", "b"}, "x": nil}))
}

// noRecords is a store without records.
type noRecords struct{ lease.Store }

func TestNewReportsFaults(t *testing.T) {
	c, err := lease.New(memlease.New(), nil)
	require.NoError(t, err)
	bare, err := lease.New(noRecords{memlease.New()}, nil)
	require.NoError(t, err)
	ok := shard.Static("a")
	for name, f := range map[string]func() (*shard.Worker, error){
		"the client is nil":                  func() (*shard.Worker, error) { return shard.New(nil, "g", ok, nil) },
		"the source is nil":                  func() (*shard.Worker, error) { return shard.New(c, "g", nil, nil) },
		"keeps no records":                   func() (*shard.Worker, error) { return shard.New(bare, "g", ok, nil) },
		"has a slash":                        func() (*shard.Worker, error) { return shard.New(c, "a/b", ok, nil) },
		"more than 100":                      func() (*shard.Worker, error) { return shard.New(c, strings.Repeat("g", 101), ok, nil) },
		"begins its locks' names":            func() (*shard.Worker, error) { return shard.New(c, "", ok, nil) },
		`the shard "a" twice`:                func() (*shard.Worker, error) { return shard.New(c, "g", shard.Static("a", "a"), nil) },
		"grace -1s is negative":              func() (*shard.Worker, error) { return shard.New(c, "g", ok, &shard.Options{Grace: -1e9}) },
		"stop limit -1s is negative":         func() (*shard.Worker, error) { return shard.New(c, "g", ok, &shard.Options{StopLimit: -1e9}) },
		"the limit of -1 shards":             func() (*shard.Worker, error) { return shard.New(c, "g", ok, &shard.Options{MaxShards: -1}) },
		"the progress limit 1s is below":     func() (*shard.Worker, error) { return shard.New(c, "g", ok, &shard.Options{Progress: 1e9}) },
		"the source's interval 1s is below":  func() (*shard.Worker, error) { return shard.New(c, "g", ok, &shard.Options{SourceInterval: 1e9}) },
		"interval 15s is not below half of ": func() (*shard.Worker, error) { return shard.New(c, "g", ok, &shard.Options{Interval: 15e9}) },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f()
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.ErrorContains(t, err, name)
		})
	}
	w, err := shard.New(c, "g", ok, nil)
	require.NoError(t, err)
	require.ErrorIs(t, w.Run(t.Context(), nil), lease.ErrInvalid)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, w.Run(ctx, func(context.Context, *shard.Shard) error { return nil }))
}
