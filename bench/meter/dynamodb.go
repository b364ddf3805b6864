package meter

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"net/http"
	"strings"
)

// DynamoDB computes units by the rules of the Developer Guide, "Read and write operations": a write costs one unit per
// started KB of the item (the larger of before and after), a read one per started 4 KB, half of it if it is eventually
// consistent; transactions cost twice; a write whose condition fails costs as much as if it had passed; a read that finds
// nothing costs like the smallest item. An item's size is known from what passed by, so that the first update of a large item
// that is never returned could be counted too low; the items of locks are far below 1 KB.
func DynamoDB() Rule { return &dynamoDB{sizes: map[string]int{}} }

type dynamoDB struct{ sizes map[string]int }

type item map[string]json.RawMessage

// operation is the part of a request or an answer of DynamoDB that says what it costs.
type operation struct {
	TableName                 string
	Key, Item, Attributes     item
	ExpressionAttributeValues item
	ExpressionAttributeNames  map[string]string
	ConsistentRead            bool
	Items                     []item
	TransactItems             []struct{ Put, Update, Delete, ConditionCheck, Get *operation }
	ScannedCount              int
}

func (d *dynamoDB) Cost(c Call) Cost {
	_, op, _ := strings.Cut(c.Request.Header.Get("X-Amz-Target"), ".")
	var in, out operation
	_ = json.Unmarshal(c.Body, &in)    // what cannot be read names no key and costs the least
	_ = json.Unmarshal(c.Answer, &out) // no answer: nothing is known of it
	cost := Cost{Op: op, Key: in.key()}
	failed := c.Status >= http.StatusBadRequest && !strings.Contains(string(c.Answer), "ConditionalCheckFailed") &&
		!strings.Contains(string(c.Answer), "TransactionCanceled")
	if failed {
		return cost // refused before anything was read or written
	}
	switch op {
	case "GetItem":
		cost.Reads = in.reads(out.Item.size())
	case "Query", "Scan":
		total := 0
		for _, i := range out.Items {
			total += i.size()
		}
		cost.Reads = in.reads(total)
	case "PutItem", "UpdateItem", "DeleteItem":
		cost.Writes = d.write(in, max(out.Item.size(), out.Attributes.size()))
	case "TransactWriteItems", "TransactGetItems":
		for _, t := range in.TransactItems {
			for _, part := range []*operation{t.Put, t.Update, t.Delete, t.ConditionCheck} {
				if part != nil {
					cost.Writes += 2 * d.write(*part, 0)
				}
			}
			if t.Get != nil {
				cost.Reads += 2
			}
		}
	}
	return cost
}

// write is the units of one write. returned is the size of the item that came back with it.
func (d *dynamoDB) write(in operation, returned int) float64 {
	seen := in.Item.size()
	if in.Item == nil {
		seen = in.Key.size() + in.ExpressionAttributeValues.size()
		for _, name := range in.ExpressionAttributeNames {
			seen += len(name)
		}
		seen = min(seen, 1024) // the values of the condition are in it, so that it proves no more than the first unit
	}
	id := in.TableName + "\x00" + in.key()
	d.sizes[id] = max(d.sizes[id], seen, returned)
	return math.Ceil(float64(max(d.sizes[id], 1)) / 1024)
}

func (o operation) reads(size int) float64 {
	units := math.Ceil(float64(max(size, 1)) / 4096)
	if !o.ConsistentRead {
		units /= 2
	}
	return units
}

// key is the value of the item's key: of tables with a hash key of one string, which those of locks are.
func (o operation) key() string {
	from := o.Key
	if from == nil {
		from = o.Item
	}
	for _, name := range []string{"name", "key", "_id", "id"} {
		var v struct{ S string }
		if raw, ok := from[name]; ok && json.Unmarshal(raw, &v) == nil {
			return v.S
		}
	}
	return ""
}

// size is an item's size by the Developer Guide, "Item sizes and formats".
func (i item) size() int {
	total := 0
	for name, v := range i {
		total += len(name) + valueSize(v)
	}
	return total
}

func valueSize(raw json.RawMessage) int {
	var v struct {
		S, N, B    *string
		SS, NS, BS []string
		L          []json.RawMessage
		M          item
	}
	if json.Unmarshal(raw, &v) != nil {
		return 1
	}
	switch {
	case v.S != nil:
		return len(*v.S)
	case v.N != nil:
		return (len(*v.N)+1)/2 + 1
	case v.B != nil:
		return base64.StdEncoding.DecodedLen(len(*v.B))
	case v.L != nil:
		total := 3
		for _, e := range v.L {
			total += 1 + valueSize(e)
		}
		return total
	case v.M != nil:
		return 3 + len(v.M) + v.M.size()
	}
	total := 1 // BOOL and NULL
	for _, s := range append(append(v.SS, v.NS...), v.BS...) {
		total += len(s)
	}
	return total
}
