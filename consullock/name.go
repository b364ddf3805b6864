package consullock

import (
	"fmt"
	"strings"

	"github.com/cloudlease/cloudlease/internal/escape"
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
		if c := prefix[i]; !escape.Plain(c) && c != '/' {
			return lease.Invalid("configure", "", "the prefix %.40q has other characters than letters, digits, '-', '_' and '/'", prefix)
		}
	}
	if len(prefix) > maxPrefix || prefix[0] == '/' || !strings.HasSuffix(prefix, "/") || strings.Contains(prefix, "//") {
		return lease.Invalid("configure", "", "the prefix %.40q begins with '/', does not end with '/', has an empty part, or is longer than %d", prefix, maxPrefix)
	}
	return nil
}

func (s *Store) lockPath(name string) string    { return s.path(locksPart, name, lockKey) }
func (s *Store) keptPath(name string) string    { return s.path(locksPart, name, keptKey) }
func (s *Store) floorPath(name string) string   { return s.path(floorsPart, name, floorKey) }
func (s *Store) lockFolder(name string) string  { return s.path(locksPart, name, "") }
func (s *Store) floorFolder(name string) string { return s.path(floorsPart, name, "") }

func (s *Store) path(kind, name, part string) string {
	return s.opt.Prefix + kind + escape.Name(name) + "/" + part
}

func (s *Store) recordPath(key string) string { return s.opt.Prefix + recordsPart + escape.Name(key) }

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
	name, err = escape.Undo(escaped)
	return name, part, err
}
