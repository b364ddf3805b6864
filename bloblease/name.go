package bloblease

import (
	"fmt"
	"net/url"
	"strings"

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
		if c := prefix[i]; !plain(c) && c != '/' {
			return lease.Invalid("configure", "", "the prefix %.40q has other characters than letters, digits, '-', '_' and '/'", prefix)
		}
	}
	if len(prefix) > maxPrefix || prefix[0] == '/' || strings.Contains(prefix, "//") {
		return lease.Invalid("configure", "", "the prefix %.40q begins with '/', has an empty part, or is longer than %d", prefix, maxPrefix)
	}
	return nil
}

// plain tells whether a byte stands for itself in the name of a blob. Not among them are those that the service, its tools or
// URLs treat in some special way: '/' makes directories, '.' at an end is cut, and "%2F" would be read as '/' by some.
func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

const (
	hex      = "0123456789ABCDEF"
	lowerHex = "0123456789abcdef"
)

// escape makes the name of a lock part of a blob's name, byte by byte and reversibly: what is not plain becomes =XX. The escape
// of a prefix is a prefix of the escape.
func escape(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'=', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

// unescape is the reverse of escape. What escape cannot have written is an error.
func unescape(text string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '=' && i+2 < len(text) {
			high, low := strings.IndexByte(hex, text[i+1]), strings.IndexByte(hex, text[i+2])
			if high < 0 || low < 0 || plain(byte(high<<4|low)) {
				return "", fmt.Errorf("%.60q is not the escaped name of a lock", text)
			}
			c = byte(high<<4 | low)
			i += 2
		} else if !plain(c) {
			return "", fmt.Errorf("%.60q is not the escaped name of a lock", text)
		}
		b.WriteByte(c)
	}
	return b.String(), nil
}

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
