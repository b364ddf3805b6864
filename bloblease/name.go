package bloblease

import (
	"net/url"
	"strings"

	"github.com/cloudlease/cloudlease/internal/escape"
	"github.com/cloudlease/cloudlease/lease"
)

const (
	defaultPrefix = "cloudlease/"
	locksPart     = "locks/"
	recordsPart   = "records/"
	guardPart     = "guarded/"
	maxPrefix     = 200 // with it, a part and the longest name escaped, a blob's name has less than its 1024 characters
)

func checkPrefix(prefix string) error {
	for i := range len(prefix) {
		if c := prefix[i]; !escape.Plain(c) && c != '/' {
			return lease.Invalid("configure", "", "the prefix %.40q has other characters than letters, digits, '-', '_' and '/'", prefix)
		}
	}
	if len(prefix) > maxPrefix || prefix[0] == '/' || strings.Contains(prefix, "//") {
		return lease.Invalid("configure", "", "the prefix %.40q begins with '/', has an empty part, or is longer than %d", prefix, maxPrefix)
	}
	return nil
}

const lowerHex = "0123456789abcdef"

func (s *Store) lockPrefix() string   { return s.opt.Prefix + locksPart }
func (s *Store) recordPrefix() string { return s.opt.Prefix + recordsPart }

// placeOf is what a container is called in errors: its account and its name, without anything secret that the URL carries.
func placeOf(containerURL string) string {
	u, err := url.Parse(containerURL)
	if err != nil {
		return "Azure container"
	}
	path := strings.Split(strings.Trim(u.Path, "/"), "/")
	account, _, _ := strings.Cut(u.Hostname(), ".")
	if len(path) > 1 { // the account is in the path: an emulator
		account, path = path[0], path[1:]
	}
	return "Azure container " + account + "/" + strings.Join(path, "/")
}
