package dynamolock_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

// TestErrorsOfForeignItemsCanBeShown: however large an attribute is, and whatever it has in it, an error says what is wrong in a few
// words that a terminal can show.
func TestErrorsOfForeignItemsCanBeShown(t *testing.T) {
	const huge = 400_000 // bytes: the largest item
	good := map[string]string{
		"name": `{"S":"x"}`, "version": `{"N":"1796000000000"}`, "holder": `{"S":""}`, "nonce": `{"S":"n"}`,
		"expires": `{"N":"1000"}`, "ttl": `{"N":"30000"}`,
	}
	for _, attr := range []string{"version", "holder", "nonce", "expires", "ttl", "since", "started", "running", "value", "broken", "revision", "fence"} {
		for what, value := range map[string]string{
			"an oversized number": `{"N":"` + strings.Repeat("9", huge) + `"}`,
			"an oversized text":   `{"S":"` + strings.Repeat("x", huge) + `"}`,
			"a controlling text":  `{"S":"\u001b[2J\u0000\n"}`,
			"no number":           `{"N":"\u001b[2J\n"}`,
			"a deep map":          strings.Repeat(`{"M":{"a":`, 1000) + `{"S":"x"}` + strings.Repeat(`}}`, 1000),
		} {
			t.Run(attr+" "+what, func(t *testing.T) {
				var parts []string
				for k, v := range good {
					if k != attr {
						parts = append(parts, fmt.Sprintf("%q:%s", k, v))
					}
				}
				it := "{" + strings.Join(append(parts, fmt.Sprintf("%q:%s", attr, value)), ",") + "}"
				st, guard := answering(t, func(r *http.Request) *http.Response {
					switch _, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); op {
					case "GetItem":
						return answer(r, http.StatusOK, `{"Item":`+it+`}`)
					case "Scan":
						return answer(r, http.StatusOK, `{"Items":[`+it+`]}`)
					}
					return answer(r, http.StatusBadRequest,
						`{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"no","Item":`+it+`}`)
				})
				g := lease.Grant{
					Request: lease.Request{Name: "x", Holder: "me", TTL: 30 * time.Second, Attempt: attempt, Since: lease.SystemClock()}, Token: 7,
				}
				_, acquired := st.TryAcquire(t.Context(), g.Request)
				_, inspected := st.Inspect(t.Context(), "x")
				_, loaded := st.Load(t.Context(), "x")
				_, read := guard.Get(t.Context(), "x")
				_, renewed := st.Renew(t.Context(), g)
				var listed error
				for _, err := range st.List(t.Context(), "") {
					listed = errors.Join(listed, err)
				}
				for _, err := range []error{
					acquired, inspected, loaded, read, renewed, listed, st.Release(t.Context(), g, lease.Final{}), guard.Put(t.Context(), "x", nil, 7, "me"),
				} {
					oneClass(t, err)
					if err != nil {
						require.Less(t, len(err.Error()), 700, "%.300q", err.Error())
						require.False(t, strings.ContainsFunc(err.Error(), unicode.IsControl), "%.300q", err.Error())
					}
				}
			})
		}
	}
}
