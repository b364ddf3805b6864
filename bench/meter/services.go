package meter

import (
	"encoding/json"
	"net/http"
	"path"
	"strings"
)

// Azure classifies blob operations by Azure's page "Map each REST operation to a price", for a standard general-purpose v2
// account. Refused operations are billed like others.
func Azure() Rule { return azure{} }

type azure struct{}

func (azure) Cost(c Call) Cost {
	r, q := c.Request, c.Request.URL.Query()
	cost := Cost{Key: path.Base(r.URL.Path), Class: OtherClass}
	comp := q.Get("comp")
	switch {
	case q.Get("restype") == "container" && comp == "list":
		cost.Op, cost.Class, cost.Key = "list blobs", ListClass, ""
	case q.Get("restype") == "container":
		cost.Op, cost.Key = strings.TrimSpace("container "+comp), ""
	case comp == "lease":
		cost.Op = "lease " + r.Header.Get("X-Ms-Lease-Action")
	case r.Method == http.MethodPut && (comp == "properties" || comp == "metadata"):
		cost.Op = "set blob " + comp
	case r.Method == http.MethodPut && comp == "page":
		cost.Op, cost.Class = "put page", WriteClass
	case r.Method == http.MethodPut && comp == "":
		cost.Op, cost.Class = "put blob", WriteClass
	case r.Method == http.MethodHead:
		cost.Op = "get blob properties"
	case r.Method == http.MethodGet && comp == "":
		cost.Op, cost.Class = "get blob", ReadClass
	case r.Method == http.MethodDelete:
		cost.Op, cost.Class = "delete blob", FreeClass
	default:
		cost.Op = strings.ToLower(r.Method) + " " + comp
	}
	return cost
}

// Consul names the requests of Consul's HTTP API. Its servers are your own, and no request has a price.
func Consul() Rule { return consul{} }

type consul struct{}

func (consul) Cost(c Call) Cost {
	r, q := c.Request, c.Request.URL.Query()
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/"), "/")
	switch parts[0] {
	case "session":
		return Cost{Op: strings.Join(parts[:min(2, len(parts))], " ")}
	case "kv":
		cost := Cost{Op: "kv " + strings.ToLower(r.Method), Key: lockOf(strings.Join(parts[1:], "/"))}
		for _, verb := range []string{"acquire", "release"} {
			if q.Has(verb) {
				cost.Op = "kv " + verb
			}
		}
		if q.Has("index") {
			cost.Op = "kv blocking query"
		}
		return cost
	case "txn":
		return txn(c.Body)
	}
	return Cost{Op: strings.ToLower(r.Method) + " " + parts[0]}
}

func txn(body []byte) Cost {
	var ops []struct{ KV struct{ Verb, Key string } }
	_ = json.Unmarshal(body, &ops) // what cannot be read has no verbs
	cost := Cost{Op: "txn"}
	before := ""
	for _, o := range ops {
		if o.KV.Verb != before { // a round over sixty leases has sixty of the same
			cost.Op += " " + o.KV.Verb
			before = o.KV.Verb
		}
		if o.KV.Key != "" {
			cost.Key = lockOf(o.KV.Key)
		}
	}
	return cost
}

// lockOf is the lock that a key belongs to: its last part, and of this project's keys (prefix/locks/name/part) the name.
func lockOf(key string) string {
	if _, rest, ours := strings.Cut(key, "/locks/"); ours {
		name, _, _ := strings.Cut(rest, "/")
		return name
	}
	return path.Base(key)
}
