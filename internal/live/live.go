// Package live lets the stores' tests run against the services themselves, on what they make there and nothing else.
//
// It is off by default. The variable CLOUDLEASE_LIVE names the services, separated by commas; where each one is and who asks is
// told by the variables that its own tools read:
//
//	dynamodb  AWS_REGION, AWS_PROFILE and the rest of the SDK's; tables named cloudlease-live-RUN-N, tagged cloudlease-live
//	azblob    AZURE_STORAGE_CONNECTION_STRING, or CLOUDLEASE_LIVE_AZBLOB, the account's URL, and azidentity's variables;
//	          containers named cloudlease-live-RUN-N
//	consul    CONSUL_HTTP_ADDR, CONSUL_HTTP_TOKEN and the rest of the client's; keys below cloudlease-live/RUN/N/
//
// Every run has a RUN of its own. What exists already is refused and left untouched, and only what a run has made is deleted by
// it: no test can reach a table, a container or a key of somebody else's. A run that is killed leaves its own behind.
package live

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
)

// Variable names the services that tests shall run on.
const Variable = "CLOUDLEASE_LIVE"

// The services.
const (
	DynamoDB = "dynamodb"
	AzBlob   = "azblob"
	Consul   = "consul"
)

// Wanted tells whether tests shall run on service. A name in the variable that is no service's panics: a misspelled one would
// be a run that tests nothing and says so nowhere.
func Wanted(service string) bool {
	wanted := false
	for name := range strings.SplitSeq(os.Getenv(Variable), ",") {
		name = strings.TrimSpace(name)
		if name != "" && !slices.Contains([]string{DynamoDB, AzBlob, Consul}, name) {
			panic(fmt.Sprintf("%s=%q: %q is none of %s, %s, %s", Variable, os.Getenv(Variable), name, DynamoDB, AzBlob, Consul))
		}
		wanted = wanted || name == service
	}
	return wanted
}

// made is what a run has made.
type made struct {
	run string

	mu    sync.Mutex
	n     int
	names map[string]bool
}

func newMade() made {
	return made{run: strings.ToLower(rand.Text()[:10]), names: map[string]bool{}}
}

// next is a name that no earlier call and no other run has given.
func (m *made) next(format string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n++
	return fmt.Sprintf(format, m.run, m.n)
}

func (m *made) add(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.names[name] = true
}

// take tells whether name was made here, once.
func (m *made) take(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.names[name] {
		return fmt.Errorf("delete %s: refused, this run did not make it", name)
	}
	delete(m.names, name)
	return nil
}

// brief is a transport that leaves no connection open behind it.
func brief() http.RoundTripper {
	return &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
}

func refused(what, name string, err error) error {
	return fmt.Errorf("%s %s exists and was not made by this run: refused, and left as it is; remove it yourself if nobody needs it: %w", what, name, err)
}
