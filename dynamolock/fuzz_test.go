package dynamolock_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

// foreignItems are items of locks as this library writes them, and each with one attribute spoiled.
func foreignItems() []string {
	now := time.Now().UnixMilli()
	good := map[string]string{
		"name": `{"S":"x"}`, "version": `{"N":"1796000000000"}`, "holder": `{"S":"other#1"}`, "nonce": `{"S":"n"}`,
		"expires": fmt.Sprintf(`{"N":"%d"}`, now+20_000), "ttl": `{"N":"30000"}`, "since": fmt.Sprintf(`{"N":"%d"}`, now),
		"value": `{"B":"dg=="}`, "started": `{"N":"1796000000"}`, "finished": `{"N":"1796000000"}`, "running": `{"N":"0"}`,
		"revision": `{"N":"1"}`, "data": `{"B":"dg=="}`, "fence": `{"N":"7"}`, "fence_holder": `{"S":"a"}`,
	}
	item := func(attr, value string) string {
		var parts []string
		for k, v := range good {
			if k == attr {
				v = value
			}
			if v != "" {
				parts = append(parts, fmt.Sprintf("%q:%s", k, v))
			}
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	items := []string{
		item("", ""), item("holder", `{"S":""}`), item("expires", `{"N":"1000"}`), item("version", `{"N":"9007199254740991"}`),
		item("expires", `{"N":"253402300799999"}`),
		item("value", `{"B":"dg=="},"broken":{"M":{"by":{"S":"op"},"why":{"S":"stuck"},"token":{"N":"7"},"at":{"N":"1796000000000"}}}`), "{}", "null", "[]", `{"name":{"S":"x"},"pk":{"S":"an order"},"total":{"N":"12.5"}}`,
	}
	spoiled := []string{
		"", `{"S":""}`, `{"S":"007"}`, `{"N":"-1"}`, `{"N":"0"}`, `{"N":"1.5"}`, `{"N":"9007199254740992"}`, `{"NULL":true}`,
		`{"B":"AA=="}`, `{"M":{}}`, `{"NS":["1"]}`, `null`,
	}
	for attr := range good {
		for _, value := range spoiled {
			items = append(items, item(attr, value))
		}
	}
	return items
}

// attempt is what no item of a fuzzer's can hold: a grant would be a wrong one.
const attempt = "3q2x7kz5f6w4j2p8"

// FuzzForeignItem: whatever item stands in the table, no operation panics or grants, every error has one class, and an item is
// understood if and only if it is what this library writes.
func FuzzForeignItem(f *testing.F) {
	for _, it := range foreignItems() {
		f.Add([]byte(it))
	}
	f.Fuzz(func(t *testing.T, it []byte) {
		if !json.Valid(it) {
			return // not an answer of the service's; see FuzzAnswer
		}
		reply := func(r *http.Request) *http.Response {
			switch _, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); op {
			case "GetItem":
				return answer(r, http.StatusOK, `{"Item":`+string(it)+`}`)
			case "Scan":
				return answer(r, http.StatusOK, `{"Items":[`+string(it)+`]}`)
			}
			return answer(r, http.StatusBadRequest,
				`{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"no","Item":`+string(it)+`}`)
		}
		st, guard := answering(t, reply)
		info, err := st.Inspect(t.Context(), "x")
		if attrs, typed := typedItem(it); typed {
			token, ours := understood(attrs)
			require.Equal(t, ours, err == nil, "%v", err)
			require.Equal(t, token, info.Token)
		}
		everyOperation(t, st, guard)
	})
}

// typedItem is an item whose attributes have one type each, as all have that come from the service.
func typedItem(it []byte) (attrs map[string]map[string]any, ok bool) {
	if err := json.Unmarshal(it, &attrs); err != nil {
		return nil, false
	}
	for _, typed := range attrs {
		_, isString := typed["S"].(string)
		_, isNumber := typed["N"].(string)
		_, isBool := typed["BOOL"].(bool)
		binary, isBinary := typed["B"].(string)
		if _, err := base64.StdEncoding.DecodeString(binary); err != nil {
			return nil, false
		}
		if len(typed) != 1 || !isString && !isNumber && !isBool && !isBinary {
			return nil, false
		}
	}
	return attrs, true
}

// understood says once more what makes an item one of this library's. An empty one is none, and no fault.
func understood(attrs map[string]map[string]any) (token lease.Token, ours bool) {
	if len(attrs) == 0 {
		return 0, true
	}
	ours = true
	number := func(attr string, least, most int64) int64 {
		text, isNumber := attrs[attr]["N"].(string)
		n, err := strconv.ParseInt(text, 10, 64)
		ours = ours && isNumber && err == nil && n >= least && n <= most
		return n
	}
	const year9999 = 253402300799
	version := number("version", 1, 1<<53-1)
	number("expires", 0, year9999*1000+999)
	number("ttl", 1, dynamolock.MaxTTL.Milliseconds())
	for attr, most := range map[string]int64{
		"since": year9999*1000 + 999, "started": year9999, "finished": year9999, "running": year9999,
	} {
		if _, there := attrs[attr]; there {
			number(attr, 0, most)
		}
	}
	for _, attr := range []string{"holder", "nonce"} {
		_, isString := attrs[attr]["S"].(string)
		ours = ours && isString
	}
	if !ours {
		return 0, false
	}
	return lease.Token(version), true //nolint:gosec // positive
}

// FuzzAnswer: whatever the service, or what stands before it, answers, no operation panics or grants.
func FuzzAnswer(f *testing.F) {
	for kind := range statuses {
		for _, body := range []string{
			"", "null", "{}", "<html>sign in</html>", `{"Item":{},"Attributes":{},"Items":[{}]}`, `{"__type":"#","message":7}`,
			`{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","Item":[]}`,
		} {
			f.Add(uint8(kind), []byte(body)) //nolint:gosec // a few
		}
	}
	for _, it := range foreignItems()[:9] {
		f.Add(uint8(0), []byte(`{"Item":`+it+`,"Attributes":`+it+`,"Items":[`+it+`]}`))
	}
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		st, guard := answering(t, func(r *http.Request) *http.Response {
			return answer(r, statuses[int(kind)%len(statuses)], string(body))
		})
		everyOperation(t, st, guard)
	})
}

var statuses = []int{200, 204, 400, 403, 404, 413, 429, 500, 503}

// answering is a store and a guard on a service that answers as told.
func answering(t *testing.T, reply func(*http.Request) *http.Response) (*dynamolock.Store, *dynamolock.Guard) {
	t.Helper()
	api := emulator.Client("", roundTripper(func(r *http.Request) (*http.Response, error) {
		_, err := io.Copy(io.Discard, r.Body)
		return reply(r), err
	}))
	st, err := dynamolock.New(api, table, &dynamolock.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	guard, err := dynamolock.NewGuard(api, "guarded", nil)
	require.NoError(t, err)
	return st, guard
}

// everyOperation does everything, with requests that the service has never granted.
func everyOperation(t *testing.T, st *dynamolock.Store, guard *dynamolock.Guard) {
	t.Helper()
	ctx := t.Context()
	r := lease.Request{Name: "x", Holder: "me", TTL: 30 * time.Second, Attempt: attempt, Since: lease.SystemClock()}
	g := lease.Grant{Request: r, Token: 7, Expires: time.Now()}
	for _, mark := range []*lease.Mark{nil, nil, {Occurrence: time.Now().Unix()}} { // cold, then warm
		r.Mark = mark
		_, err := st.TryAcquire(ctx, r)
		require.Error(t, err, "a grant that nobody gave")
		oneClass(t, err)
		if held, ok := errors.AsType[*lease.HeldError](err); ok {
			require.LessOrEqual(t, held.RetryAfter, 2*dynamolock.MaxTTL, "nobody is kept away for ever")
		}
	}
	_, inspected := st.Inspect(ctx, "x")
	_, loaded := st.Load(ctx, "x")
	_, got := guard.Get(ctx, "x")
	var listed, scanned error
	for _, listed = range st.List(ctx, "") {
		oneClass(t, listed)
	}
	for _, scanned = range st.Scan(ctx, "") {
		oneClass(t, scanned)
	}
	// Writes whose success the service only confirms, without saying what it wrote, are believed.
	_, renewed := st.Renew(ctx, g)
	_, saved := st.Save(ctx, g, []byte("v"))
	_, swapped := st.Swap(ctx, lease.Record{Key: "x"}, nil, 0)
	for _, err := range []error{
		inspected, loaded, got, renewed, saved, swapped, st.Release(ctx, g, lease.Final{}), guard.Put(ctx, "x", nil, 7, "me"),
		st.Break(ctx, "x", 7, why), st.RaiseFloor(ctx, "x", 7),
	} {
		oneClass(t, err)
	}
}

// oneClass wants err, if there is one, to match one class and to say what it is about.
func oneClass(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	var classes []error
	for _, class := range []error{
		lease.ErrHeld, lease.ErrPassed, lease.ErrLost, lease.ErrReleased, lease.ErrStale, lease.ErrConflict, lease.ErrInvalid,
		lease.ErrDenied, lease.ErrMisconfigured, lease.ErrUnavailable, lease.ErrInDoubt, lease.ErrClosed,
	} {
		if errors.Is(err, class) {
			classes = append(classes, class)
		}
	}
	require.Len(t, classes, 1, "%v", err)
	require.NotContains(t, err.Error(), attempt)
}
