package singleton_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/singleton"
)

// printKeys names the environment variable that makes the test binary print occurrences and exit, for tests that need a
// process with another time zone.
const printKeys = "SINGLETON_TEST_PRINT_KEYS"

func TestMain(m *testing.M) {
	if os.Getenv(printKeys) != "" {
		for _, text := range spellings {
			at, err := singleton.ParseOccurrence(text)
			fmt.Println(at.Unix(), at, err)
		}
		for _, local := range localTimes {
			at, err := singleton.LocalTime(local.zone, local.text)
			fmt.Println(at.Unix(), at, err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}
