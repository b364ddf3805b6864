package dynamolock_test

import (
	"bytes"
	"encoding/json"
	"io"
	"iter"
	"maps"
	"net/http"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/lease"
)

// policy is the permissions that docs/iam.md gives a role, each as the action and the table: "dynamodb:GetItem locks".
func policy(t *testing.T, role string) []string {
	t.Helper()
	doc, err := os.ReadFile("../docs/iam.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)\n## " + regexp.QuoteMeta(role) + "\n[^#]*?```json\n(.*?)```").FindSubmatch(doc)
	require.NotNil(t, found, "docs/iam.md has no policy for the role %q", role)
	var p struct {
		Version   string
		Statement []struct {
			Effect, Resource string
			Action           []string
		}
	}
	decode := json.NewDecoder(bytes.NewReader(found[1]))
	decode.DisallowUnknownFields()
	require.NoError(t, decode.Decode(&p))
	require.Equal(t, "2012-10-17", p.Version)
	var all []string
	for _, s := range p.Statement {
		require.Equal(t, "Allow", s.Effect)
		require.Regexp(t, `^arn:aws:dynamodb:REGION:ACCOUNT:table/[a-z]+$`, s.Resource)
		for _, action := range s.Action {
			all = append(all, action+" "+path.Base(s.Resource))
		}
	}
	return slices.Sorted(slices.Values(all))
}

// gate stands between a client and the service: it keeps which permissions were needed, and denies some.
type gate struct {
	mu     sync.Mutex
	needed map[string]int // permission -> requests
	denied func(permission string) bool
	says   string // how a denial is worded; default: as IAM does
}

func newGate() *gate {
	return &gate{needed: map[string]int{}, denied: func(string) bool { return false }}
}

func (g *gate) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		for _, p := range permissions(op, body) {
			if text, denied := g.ask(p); denied {
				return answer(r, http.StatusBadRequest, `{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"`+text+`"}`), nil
			}
		}
		if canned, ok := controlPlane[op]; ok {
			return answer(r, http.StatusOK, canned), nil
		}
		return next.RoundTrip(r)
	})
}

// controlPlane is what the embedded engine does not answer.
var controlPlane = map[string]string{
	"DescribeTimeToLive": `{"TimeToLiveDescription":{"TimeToLiveStatus":"DISABLED"}}`,
	"UpdateTimeToLive":   `{}`, "UpdateContinuousBackups": `{}`,
}

func (g *gate) ask(permission string) (text string, denied bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.needed[permission]++
	if !g.denied(permission) {
		return "", false
	}
	action, tab, _ := strings.Cut(permission, " ")
	if g.says != "" {
		return g.says, true
	}
	return "User: arn:aws:sts::123456789012:assumed-role/f/f is not authorized to perform: " + action +
		" on resource: arn:aws:dynamodb:eu-west-1:123456789012:table/" + tab +
		" because no identity-based policy allows the " + action + " action", true
}

// deny refuses what denied says from now on, in the words of says; nil lets everything pass.
func (g *gate) deny(says string, denied func(permission string) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.says, g.denied = says, denied
	if denied == nil {
		g.denied = func(string) bool { return false }
	}
}

// asked are the permissions that were needed, and forgets them.
func (g *gate) asked() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.needed
	g.needed = map[string]int{}
	return n
}

// permissions are what IAM asks for before it lets a request pass. A transaction has none of its own but those of its items; tags
// at a table's creation have one of theirs.
func permissions(op string, body []byte) []string {
	var in struct {
		TableName     string
		Tags          []any
		TransactItems []map[string]struct{ TableName string }
	}
	if err := json.Unmarshal(body, &in); err != nil {
		panic(err)
	}
	if op != "TransactWriteItems" {
		all := []string{"dynamodb:" + op + " " + in.TableName}
		if op == "CreateTable" && len(in.Tags) > 0 {
			all = append(all, "dynamodb:TagResource "+in.TableName)
		}
		return all
	}
	of := map[string]string{
		"ConditionCheck": "ConditionCheckItem", "Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem",
	}
	var all []string
	for _, it := range in.TransactItems {
		for kind, item := range it {
			all = append(all, "dynamodb:"+of[kind]+" "+item.TableName)
		}
	}
	return all
}

// TestPolicies lives each role's whole life and wants it to have needed what docs/iam.md gives it: no more, no less.
func TestPolicies(t *testing.T) {
	for role, life := range map[string]func(*testing.T, *service, *gate){
		"Locker": lockerLife, "Watcher": watcherLife, "Guard writer": writerLife, "Transaction with the lock": transactionLife,
		"Checker": checkerLife, "Administrator": adminLife,
	} {
		t.Run(role, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate()
				life(t, newService(t), g)
				require.Equal(t, policy(t, role), slices.Sorted(maps.Keys(g.asked())))
			})
		})
	}
}

// gated is a store on s whose requests pass g.
func (s *service) gated(t *testing.T, g *gate) host {
	t.Helper()
	st, err := dynamolock.New(s.sdk(g.wrap), table, nil)
	require.NoError(t, err)
	return host{st, nil}
}

// drain reads a listing to its end.
func drain[T any](t *testing.T, all iter.Seq2[T, error]) (n int) {
	t.Helper()
	for _, err := range all {
		require.NoError(t, err)
		n++
	}
	return n
}

func lockerLife(t *testing.T, s *service, g *gate) {
	ctx := t.Context()
	a, b := s.gated(t, g), s.gated(t, g)
	ca, cb := a.client(t, nil), b.client(t, nil)
	l, err := ca.TryAcquire(ctx, "x")
	require.NoError(t, err, "cold, first ever")
	_, err = cb.TryAcquire(ctx, "x")
	require.ErrorIs(t, err, lease.ErrHeld)
	go func() { time.Sleep(20 * time.Second); _ = l.Release(ctx) }()
	next, err := cb.Acquire(ctx, "x")
	require.NoError(t, err, "waited, warm")
	require.NoError(t, next.Save(ctx, []byte("v")))
	time.Sleep(time.Minute) // renewals
	require.NoError(t, next.Err())

	info, err := ca.Inspect(ctx, "x")
	require.NoError(t, err)
	require.NoError(t, a.Break(ctx, "x", info.Token, why))
	<-next.Done()
	crash(t, s, "dead", 3*time.Second)
	time.Sleep(time.Minute)
	l, err = ca.TryAcquire(ctx, "dead")
	require.NoError(t, err)
	require.NoError(t, l.Release(ctx))
	require.NoError(t, a.RaiseFloor(ctx, "restored", 1<<50))
	rec, err := a.Load(ctx, "r")
	require.NoError(t, err)
	_, err = a.Swap(ctx, rec, []byte("v"), time.Hour)
	require.NoError(t, err)
	require.NoError(t, ca.Close(ctx))
	_ = cb.Close(ctx) // its lease was broken
}

func watcherLife(t *testing.T, s *service, g *gate) {
	ctx := t.Context()
	crash(t, s, "x", 3*time.Second)
	_, err := s.host(t, nil).Swap(ctx, lease.Record{Key: "r"}, nil, 0)
	require.NoError(t, err)
	w := s.gated(t, g)
	info, err := w.Inspect(ctx, "x")
	require.NoError(t, err)
	require.Equal(t, lease.Held, info.State)
	require.NoError(t, w.client(t, nil).Wait(ctx, &lease.HeldError{Name: "x"}))
	require.Equal(t, 1, drain(t, w.List(ctx, "")))
	require.Equal(t, 1, drain(t, w.Scan(ctx, "")))
}

func writerLife(t *testing.T, s *service, g *gate) {
	ctx := t.Context()
	guard, err := dynamolock.NewGuard(s.sdk(g.wrap), "guarded", nil)
	require.NoError(t, err)
	require.NoError(t, guard.Put(ctx, "k", []byte("v"), 7, "a"))
	require.ErrorIs(t, guard.Put(ctx, "k", []byte("v"), 6, "b"), lease.ErrStale)
	require.Equal(t, map[string]int{"dynamodb:UpdateItem guarded": 2}, g.asked(), "writing needs no reading")
	require.NoError(t, guard.Put(ctx, "k", []byte("v"), 7, "a"))
	_, err = guard.Get(ctx, "k")
	require.NoError(t, err)
}

func transactionLife(t *testing.T, s *service, g *gate) {
	ctx := t.Context()
	h := s.host(t, nil)
	c := h.client(t, nil)
	l, err := c.TryAcquire(ctx, "x")
	require.NoError(t, err)
	items := []types.TransactWriteItem{
		h.Check(l), {Put: &types.Put{TableName: aws.String("guarded"), Item: attrs{"key": text("k")}}},
	}
	dynamolock.FenceOf(l).Transact(items)
	_, err = s.sdk(g.wrap).TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: items})
	require.NoError(t, err)
	require.NoError(t, c.Close(ctx))
}

func checkerLife(t *testing.T, s *service, g *gate) {
	_, err := dynamolock.Open(t.Context(), s.sdk(g.wrap), table, nil, nil)
	require.NoError(t, err)
}

func adminLife(t *testing.T, s *service, g *gate) {
	_, err := s.sdk(nil).DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: aws.String(table)})
	require.NoError(t, err)
	require.NoError(t, dynamolock.EnsureTable(t.Context(), s.sdk(g.wrap), table, everything))
}

// everything turns all on that needs a permission.
var everything = &dynamolock.TableOptions{
	DeletionProtection: true, PointInTimeRecovery: true, PurgeRecords: true, Tags: map[string]string{"team": "billing"},
}
