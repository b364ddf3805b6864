package lease

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// MaxName is the largest length of a name, in bytes.
const MaxName = 255

// CheckName tells whether name may be the name of a lock: 1 to MaxName bytes of UTF-8 without control characters. The
// same names are accepted by every store, compared byte by byte (no Unicode normalization), and never replaced or cut:
// two different names are two locks.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: a lock's name is empty; it has 1 to %d bytes", ErrInvalid, MaxName)
	case len(name) > MaxName:
		return fmt.Errorf("%w: a lock's name has %d bytes, more than %d: %.40q", ErrInvalid, len(name), MaxName, name)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: a lock's name is not valid UTF-8: %.40q", ErrInvalid, name)
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			return fmt.Errorf("%w: a lock's name has the control character %U: %.40q", ErrInvalid, r, name)
		}
	}
	return nil
}

// CheckValue tells whether v may be kept with a lock.
func CheckValue(v []byte) error {
	if len(v) > MaxValue {
		return fmt.Errorf("%w: the value kept with a lock has %d bytes, more than %d", ErrInvalid, len(v), MaxValue)
	}
	return nil
}
