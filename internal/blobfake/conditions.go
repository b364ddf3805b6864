package blobfake

import (
	"regexp"
	"strings"
)

// conditions checks the conditional headers of a write against b, which is nil if there is no such blob.
func (c *call) conditions(b *blob) *Error {
	h := c.r.Header
	if match := h.Get("If-Match"); match != "" && (b == nil || match != "*" && match != b.etag) {
		return errCondition
	}
	switch none := h.Get("If-None-Match"); {
	case none == "" || b == nil:
	case none == "*":
		return errBlobThere
	case none == b.etag:
		return errCondition
	}
	if where := h.Get("x-ms-if-tags"); where != "" {
		if b == nil {
			return errCondition
		}
		met, ok := tagsMatch(where, b.tags)
		if !ok {
			return errHeader
		}
		if !met {
			return errCondition
		}
	}
	return nil
}

var comparison = regexp.MustCompile(`^\s*"([^"]+)"\s*(<=|>=|<>|<|>|=)\s*'([^']*)'\s*$`)

// tagsMatch evaluates a condition on tags: comparisons joined by AND and OR, of which AND binds closer. A tag that is missing
// meets no comparison.
func tagsMatch(where string, tags map[string]string) (met, ok bool) {
	for either := range strings.SplitSeq(where, " OR ") {
		all := true
		for each := range strings.SplitSeq(either, " AND ") {
			m := comparison.FindStringSubmatch(each)
			if m == nil {
				return false, false
			}
			have, there := tags[m[1]]
			all = all && there && compare(have, m[2], m[3])
		}
		met = met || all
	}
	return met, true
}

func compare(have, op, want string) bool {
	switch n := strings.Compare(have, want); op {
	case "<":
		return n < 0
	case "<=":
		return n <= 0
	case ">":
		return n > 0
	case ">=":
		return n >= 0
	case "<>":
		return n != 0
	default:
		return n == 0
	}
}
