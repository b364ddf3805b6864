package emulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/truora/minidyn/interpreter/language"
)

// request has the fields of all operations that the rules look at.
type request struct {
	TableName                           string
	Key, Item                           map[string]value
	UpdateExpression                    string
	ExpressionAttributeNames            map[string]string
	ReturnValuesOnConditionCheckFailure string
	ClientRequestToken                  string
	TransactItems                       []map[string]*request // operation -> its request
	TotalSegments                       int
	IndexName                           string
	ConsistentRead                      bool

	BillingMode            string
	AttributeDefinitions   []attributeDefinition
	KeySchema              []keyElement
	GlobalSecondaryIndexes []index
}

type (
	attributeDefinition struct{ AttributeName, AttributeType string }
	keyElement          struct{ AttributeName, KeyType string }
	index               struct {
		IndexName string
		KeySchema []keyElement
	}
	value map[string]any // type -> value
)

// emptyKey tells whether v is an empty string or binary.
func (v value) emptyKey() bool { return v["S"] == "" || v["B"] == "" || v["B"] == emptyBinary }

// table is what the embedded engine remembers of a table beside minidyn.
type table struct {
	hash, sort  string // sort is empty without a range key
	indexes     []index
	description map[string]any
}

func newTable(q *request) *table {
	t := &table{indexes: q.GlobalSecondaryIndexes, description: map[string]any{
		"AttributeDefinitions": q.AttributeDefinitions,
		"BillingModeSummary":   map[string]string{"BillingMode": q.BillingMode},
	}}
	for _, k := range q.KeySchema {
		if k.KeyType == "HASH" {
			t.hash = k.AttributeName
		} else {
			t.sort = k.AttributeName
		}
	}
	return t
}

// keyOf is the key that a write addresses, given as such or as part of the item.
func (t *table) keyOf(q *request) map[string]value {
	if q.Key != nil {
		return q.Key
	}
	key := map[string]value{t.hash: q.Item[t.hash]}
	if t.sort != "" {
		key[t.sort] = q.Item[t.sort]
	}
	return key
}

// describe completes a table description, without which waiters and checks of a table's set-up would fail.
func (e *embedded) describe(a answer, name, status string) answer {
	var described map[string]map[string]any
	if a.status != http.StatusOK || json.Unmarshal(a.body, &described) != nil {
		return a
	}
	for _, d := range described {
		d["TableStatus"] = status
		maps.Copy(d, e.tables[name].description)
	}
	return answer{a.status, marshal(described)}
}

// check refuses what minidyn would do wrong without a word.
func (e *embedded) check(op string, q *request) error {
	if q.TotalSegments > 1 {
		return errors.New("parallel scans are not supported by the embedded engine")
	}
	if t := e.tables[q.TableName]; t != nil && q.IndexName != "" {
		if !slices.ContainsFunc(t.indexes, func(i index) bool { return i.IndexName == q.IndexName }) {
			return fmt.Errorf("the table has no global secondary index %s", q.IndexName)
		}
		if q.ConsistentRead {
			return errors.New("consistent reads are not supported on global secondary indexes")
		}
	}
	if op == "CreateTable" {
		return checkKeys(q)
	}
	if err := e.checkItem(q); err != nil {
		return err
	}
	for _, part := range q.TransactItems {
		for _, w := range part {
			if err := e.checkItem(w); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *embedded) checkItem(q *request) error {
	if t := e.tables[q.TableName]; t != nil && (q.Key != nil || q.Item != nil) {
		for name, v := range t.keyOf(q) {
			if v.emptyKey() {
				return fmt.Errorf("the key attribute %s must not be empty", name)
			}
			// minidyn joins the parts of a key with a dot, so that two keys could become one.
			if s, ok := v["S"].(string); ok && name == t.hash && t.sort != "" && strings.Contains(s, ".") {
				return fmt.Errorf("%s: a dot in the hash key of a table with a range key is not supported by the embedded engine", name)
			}
		}
	}
	return checkUpdate(q.UpdateExpression, q.ExpressionAttributeNames)
}

// checkKeys refuses the keys of a new table that minidyn would sort as strings although they are not.
func checkKeys(q *request) error {
	types := map[string]string{}
	for _, d := range q.AttributeDefinitions {
		types[d.AttributeName] = d.AttributeType
	}
	schemas := [][]keyElement{q.KeySchema}
	for _, i := range q.GlobalSecondaryIndexes {
		schemas = append(schemas, i.KeySchema)
	}
	for _, schema := range schemas {
		for _, k := range schema {
			if t, defined := types[k.AttributeName]; k.KeyType == "RANGE" && defined && t != "S" {
				return fmt.Errorf("%s: range keys of type %s are not supported by the embedded engine", k.AttributeName, t)
			}
		}
	}
	return nil
}

// checkUpdate refuses REMOVE, which minidyn ignores, and expressions whose actions depend on each other, which minidyn
// evaluates one after the other instead of all on the old item.
func checkUpdate(expression string, names map[string]string) error {
	var (
		lexer   = language.NewLexer(expression)
		before  language.Token
		token   = lexer.NextToken()
		action  int
		nested  int
		target  bool               // the next path is what the action changes
		changed = map[string]int{} // attribute -> action
		read    = map[string][]int{}
	)
	for ; token.Type != language.EOF; before, token = token, lexer.NextToken() {
		switch token.Type {
		case language.REMOVE:
			return errors.New("REMOVE is not supported by the embedded engine")
		case language.SET, language.ADD, language.DELETE:
			action, target = action+1, true
		case language.COMMA:
			if nested == 0 {
				action, target = action+1, true
			}
		case language.LPAREN:
			nested++
		case language.RPAREN:
			nested--
		case language.IDENT:
			name := token.Literal
			if strings.HasPrefix(name, ":") || before.Type == language.DOT {
				continue
			}
			if full, ok := names[name]; ok {
				name = full
			}
			if target {
				changed[name], target = action, false
			} else {
				read[name] = append(read[name], action)
			}
		default: // operators and brackets
		}
	}
	for name, actions := range read {
		for _, a := range actions {
			if by, ok := changed[name]; ok && by != a {
				return fmt.Errorf("%s: reading an attribute that another action changes is not supported by the embedded engine", name)
			}
		}
	}
	return nil
}
