//go:build unix

package service

import (
	"bytes"
	"encoding/json"
	"iter"
)

// Kinds of secrets. What proves a grant is one as well.
const (
	attempt      = "attempt"
	nonce        = "nonce"
	leaseID      = "lease id"
	session      = "session"
	signature    = "signature"
	sessionToken = "session token"
	aclToken     = "ACL token"
	credential   = "credential"
)

// TellCredentials tells of what the service's workers are started with and never show.
func TellCredentials(s Service, found func(kind, secret string)) {
	for _, text := range s.Credentials() {
		found(credential, text)
	}
}

// texts are all strings of a JSON document, each with the name of its member; one of DynamoDB's form, {"S": "text"}, has the
// name of the attribute. What is no JSON has none.
func texts(document []byte) iter.Seq2[string, string] {
	var root any
	_ = json.NewDecoder(bytes.NewReader(document)).Decode(&root) // nil then
	return func(yield func(string, string) bool) { each("", root, yield) }
}

func each(name string, of any, yield func(string, string) bool) bool {
	switch of := of.(type) {
	case string:
		return yield(name, of)
	case []any:
		for _, one := range of {
			if !each(name, one, yield) {
				return false
			}
		}
	case map[string]any:
		for member, one := range of {
			if _, text := one.(string); member == "S" && text {
				member = name
			}
			if !each(member, one, yield) {
				return false
			}
		}
	}
	return true
}
