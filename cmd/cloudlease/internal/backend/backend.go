package backend

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/cloudlease/cloudlease/lease"
)

// Variable is the environment variable that holds the store's URL where no flag does.
const Variable = "CLOUDLEASE_STORE"

// Backend is one place that keeps locks.
type Backend interface {
	// URL names the place. It holds no secret.
	URL() string
	// Shared tells whether other processes see the same locks.
	Shared() bool
	// Open makes the store. It makes no request to it, but may read files and ask for an identity.
	Open(ctx context.Context) (lease.Store, error)
	// Check tells report, item by item, what a lock needs of the place and what is there. It changes nothing but the lock
	// named Probe. It ends early where the rest depends on what has failed.
	Check(ctx context.Context, report func(Item))
	// Init makes the place if it is not there, and returns what there is now, in a few words.
	Init(ctx context.Context, o InitOptions) (string, error)
	// Document is a policy or a template in a form that Forms lists.
	Document(form string) (string, error)
	// Forms are the documents that there are for this kind of place.
	Forms() []string
}

// InitOptions say how a place is made. Those that a kind of place does not know are an error there.
type InitOptions struct {
	Protect bool // refuse the deletion of the table
	Backups bool // keep continuous backups
	Purge   bool // let the service remove records of single occurrences after their time; never locks
}

// The forms of documents.
const (
	Policy         = "policy"
	Terraform      = "terraform"
	CloudFormation = "cloudformation"
)

// secrets are the parameters that carry credentials in the URLs of the services, and what takes their place.
var secrets = map[string]string{
	"sig": "AZURE_STORAGE_SAS_TOKEN", "sas": "AZURE_STORAGE_SAS_TOKEN", "key": "AZURE_STORAGE_KEY", "token": "CONSUL_HTTP_TOKEN",
	"secret": "the environment", "password": "the environment",
}

// Parse reads the URL of a place. It makes no request. Where the URL leaves something open, getenv tells it.
func Parse(raw string, getenv func(string) string) (Backend, error) {
	if raw == "" {
		return nil, invalid("no store is given: use --store URL or set %s, such as dynamodb://locks?region=eu-west-1", Variable)
	}
	u, err := url.Parse(raw)
	if err != nil { // what url.Parse says repeats the URL, and perhaps a secret
		return nil, invalid("the store is not a URL such as dynamodb://locks?region=eu-west-1")
	}
	if u.User != nil {
		return nil, invalid("the store's URL carries a user or a password: leave it out, and give the credential to the environment")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, invalid("the part of the store's URL behind the question mark cannot be read")
	}
	for name := range query {
		if instead, secret := secrets[strings.ToLower(name)]; secret {
			return nil, invalid("the store's URL carries a credential (%s): leave it out, and set %s", name, instead)
		}
	}
	p := place{URL: u, query: query, getenv: getenv}
	switch u.Scheme {
	case "dynamodb":
		return newDynamoDB(p)
	case "azblob":
		return newAzure(p)
	case "consul":
		return newConsul(p)
	case "mem":
		return newMemory(p)
	case "":
		// It is not repeated: it may be a connection string, which holds a key.
		return nil, invalid("the store has no scheme; write it as dynamodb://TABLE, azblob://ACCOUNT/CONTAINER or consul://HOST:PORT/PREFIX")
	}
	return nil, invalid("the store's scheme %q is none of dynamodb, azblob and consul", u.Scheme)
}

// place is a URL that is being read.
type place struct {
	*url.URL
	query  url.Values
	getenv func(string) string
}

// only refuses parameters that are not in names, or that are given twice.
func (p place) only(names ...string) error {
	for name, values := range p.query {
		switch {
		case !slices.Contains(names, name):
			return invalid("%s URLs have no parameter %q; there are %s", p.Scheme, name, strings.Join(names, ", "))
		case len(values) > 1:
			return invalid("the parameter %q is given %d times in the store's URL", name, len(values))
		}
	}
	if p.Fragment != "" {
		return invalid("the store's URL has a fragment (#); write %%23 if it belongs to a name")
	}
	return nil
}

// endpoint is the parameter of that name, a URL of http or https without credentials.
func (p place) endpoint() (string, error) {
	text := p.query.Get("endpoint")
	if text == "" {
		return "", nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", invalid("the endpoint in the store's URL is no URL such as http://127.0.0.1:8000")
	}
	if u.User != nil || u.RawQuery != "" {
		return "", invalid("the endpoint in the store's URL carries a user or a query: leave it out")
	}
	return text, nil
}

// canonical is the URL of a place, with the parameters that are set.
func canonical(scheme, host, path string, query map[string]string) string {
	values := url.Values{}
	for name, v := range query {
		if v != "" {
			values.Set(name, v)
		}
	}
	u := url.URL{Scheme: scheme, Host: host, Path: path, RawQuery: values.Encode()}
	return u.String()
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{lease.ErrInvalid}, args...)...)
}

// noSuchForm is the error of a document that a kind of place does not have.
func noSuchForm(b Backend, form string) error {
	return invalid("there is no %s for %s; there are %s", form, b.URL(), strings.Join(b.Forms(), ", "))
}
