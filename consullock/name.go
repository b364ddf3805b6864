package consullock

import (
	"fmt"
	"strings"

	"github.com/cloudlease/cloudlease/lease"
)

const (
	defaultPrefix = "cloudlease/"
	maxPrefix     = 200

	locksPart   = "locks/"   // <name>/lock, <name>/grant, <name>/kept
	floorsPart  = "floors/"  // <name>/floor; apart from the locks, so that a folder deleted there takes no floor with it
	recordsPart = "records/" // <key>
	guardPart   = "guarded/" // <key>/fence, <key>/value

	lockKey  = "lock"
	grantKey = "grant"
	keptKey  = "kept"
	floorKey = "floor"
	fenceKey = "fence"
	valueKey = "value"
)

func checkPrefix(prefix string) error {
	for i := range len(prefix) {
		if c := prefix[i]; !plain(c) && c != '/' {
			return lease.Invalid("configure", "", "the prefix %.40q has other characters than letters, digits, '-', '_' and '/'", prefix)
		}
	}
	if len(prefix) > maxPrefix || prefix[0] == '/' || !strings.HasSuffix(prefix, "/") || strings.Contains(prefix, "//") {
		return lease.Invalid("configure", "", "the prefix %.40q begins with '/', does not end with '/', has an empty part, or is longer than %d", prefix, maxPrefix)
	}
	return nil
}

// plain tells whether a byte stands for itself in a key. '/' does not: tools show it as a folder, and a path is cleaned on its
// way; nor do '.' and '%', for the same reason.
func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

const hex = "0123456789ABCDEF"

// escape makes a name part of a key, byte by byte and reversibly: what is not plain becomes =XX. The escape of a prefix is a
// prefix of the escape.
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
				return "", fmt.Errorf("%.60q is not an escaped name", text)
			}
			c = byte(high<<4 | low)
			i += 2
		} else if !plain(c) {
			return "", fmt.Errorf("%.60q is not an escaped name", text)
		}
		b.WriteByte(c)
	}
	return b.String(), nil
}

func (s *Store) lockPath(name string) string  { return s.lockFolder(name) + lockKey }
func (s *Store) grantPath(name string) string { return s.lockFolder(name) + grantKey }
func (s *Store) keptPath(name string) string  { return s.lockFolder(name) + keptKey }

func (s *Store) lockFolder(name string) string { return s.opt.Prefix + locksPart + escape(name) + "/" }

func (s *Store) floorFolder(name string) string {
	return s.opt.Prefix + floorsPart + escape(name) + "/"
}

func (s *Store) floorPath(name string) string { return s.floorFolder(name) + floorKey }

func (s *Store) recordPath(key string) string { return s.opt.Prefix + recordsPart + escape(key) }

// nameOf takes a key of a lock or a floor apart.
func (s *Store) nameOf(key string) (name, part string, err error) {
	rest, ok := strings.CutPrefix(key, s.opt.Prefix+locksPart)
	if !ok {
		rest, ok = strings.CutPrefix(key, s.opt.Prefix+floorsPart)
	}
	escaped, part, cut := strings.Cut(rest, "/")
	if !ok || !cut {
		return "", "", fmt.Errorf("the key %.80q is no lock's", key)
	}
	name, err = unescape(escaped)
	return name, part, err
}
