package dynamolock

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/cloudlease/cloudlease/lease"
)

type (
	item     = map[string]types.AttributeValue
	metadata = middleware.Metadata
)

// The attributes of a lock's item.
const (
	attrName     = "name"     // S, hash key
	attrVersion  = "version"  // N, the fencing token
	attrHolder   = "holder"   // S, holder#attempt, constant during a hold; empty: free
	attrNonce    = "nonce"    // S, new on every write
	attrExpires  = "expires"  // N, ms on the service's clock
	attrTTL      = "ttl"      // N, ms
	attrSince    = "since"    // N, ms on the service's clock: when it was granted
	attrValue    = "value"    // B
	attrStarted  = "started"  // N, unix seconds
	attrFinished = "finished" // N, unix seconds
	attrRunning  = "running"  // N, unix seconds
)

// record is a lock's item, decoded.
type record struct {
	name    string
	version lease.Token // 0: there is no item
	holder  string      // as stored, with the attempt
	nonce   string
	expires int64 // ms
	ttl     int64 // ms
	since   int64 // ms
	value   []byte
	marks   lease.Marks
	broken  *lease.Reason
}

func (r record) absent() bool { return r.version == 0 }
func (r record) free() bool   { return r.holder == "" }

// displayed is the holder without its attempt, which is not shown.
func (r record) displayed() string {
	if i := strings.LastIndexByte(r.holder, '#'); i >= 0 {
		return r.holder[:i]
	}
	return r.holder
}

// held describes r to those who cannot have it.
func (r record) held(retryAfter time.Duration) *lease.HeldError {
	return &lease.HeldError{
		Name: r.name, Holder: r.displayed(), Token: r.version, RetryAfter: max(retryAfter, 0), Marks: r.marks,
	}
}

func holderOf(r lease.Request) string { return r.Holder + "#" + r.Attempt }

func keyOf(name string) item { return item{attrName: str(name)} }

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func num[T ~int64 | ~uint64](n T) types.AttributeValue {
	if n < 0 {
		return &types.AttributeValueMemberN{Value: strconv.FormatInt(int64(n), 10)}
	}
	return &types.AttributeValueMemberN{Value: strconv.FormatUint(uint64(n), 10)}
}

// bin keeps an empty value an empty value: the SDK sends a nil one as no type at all.
func bin(b []byte) types.AttributeValue {
	if b == nil {
		b = []byte{}
	}
	return &types.AttributeValueMemberB{Value: b}
}

// decode reads an item. Items are untrusted: somebody else may have written them, and a grant must never come of a guess.
// An empty item is an absent record.
func decode(name string, it item) (record, error) {
	r := record{name: name}
	if len(it) == 0 {
		return r, nil
	}
	d := decoder{it: it}
	r.version = lease.Token(d.num(attrVersion, 1, int64(lease.MaxToken)))
	r.holder = d.str(attrHolder)
	r.nonce = d.str(attrNonce)
	r.expires = d.num(attrExpires, 0, maxMillis)
	r.ttl = d.num(attrTTL, 1, MaxTTL.Milliseconds())
	r.since = d.optional(attrSince, maxMillis)
	r.marks = lease.Marks{
		Started: d.optional(attrStarted, maxSeconds), Finished: d.optional(attrFinished, maxSeconds),
		Running: d.optional(attrRunning, maxSeconds),
	}
	if v, ok := it[attrValue].(*types.AttributeValueMemberB); ok {
		r.value = v.Value
	}
	r.broken = brokenOf(it)
	return r, d.err
}

// The largest instants that are believed: the year 9999.
const (
	maxSeconds = 253402300799
	maxMillis  = maxSeconds*1000 + 999
)

type decoder struct {
	it  item
	err error
}

func (d *decoder) fault(attr, want string) {
	if d.err == nil {
		d.err = fmt.Errorf("the item's attribute %q is not %s: the item was not written by this library", attr, want)
	}
}

func (d *decoder) str(attr string) string {
	v, ok := d.it[attr].(*types.AttributeValueMemberS)
	if !ok {
		d.fault(attr, "a string")
		return ""
	}
	return v.Value
}

func (d *decoder) num(attr string, least, most int64) int64 {
	v, ok := d.it[attr].(*types.AttributeValueMemberN)
	if ok {
		if n, err := strconv.ParseInt(v.Value, 10, 64); err == nil && n >= least && n <= most {
			return n
		}
	}
	d.fault(attr, fmt.Sprintf("a whole number from %d to %d", least, most))
	return 0
}

func (d *decoder) optional(attr string, most int64) int64 {
	if _, ok := d.it[attr]; !ok {
		return 0
	}
	return d.num(attr, 0, most)
}

// CreateTableInput describes the table that New takes: on demand, hash key "name". Its items need no cleaning; do not turn
// item expiry on for the attribute "ttl".
func CreateTableInput(table string) *dynamodb.CreateTableInput {
	return &dynamodb.CreateTableInput{
		TableName:   &table,
		BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String(attrName), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{{AttributeName: aws.String(attrName), KeyType: types.KeyTypeHash}},
	}
}
