package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Hold is one lease as the store has seen it, from the write that granted it to the one that ended it.
type Hold struct {
	Token    string
	Holder   string
	Day      string
	From     time.Time
	Until    time.Time // released; or, if nobody released it, the end of the lease
	Renewals int
	Released bool
	Finished bool // the release marked the day as done
	TookOver bool // the holder before it had not released
}

// Holds reads the leases of a lock out of the writes on its table.
func Holds(writes []Write, table string) []Hold {
	var holds []Hold
	for _, w := range writes {
		if w.Table != table || w.Verdict != Took {
			continue
		}
		var h *Hold // the newest
		if len(holds) > 0 {
			h = &holds[len(holds)-1]
		}
		token, holder := number(w.Item, "version"), text(w.Item, "holder")
		switch {
		case holder == "" && h != nil:
			h.Until, h.Released, h.Finished = w.At, true, dayOf(w.Item, "finished") == h.Day
		case h != nil && h.Token == token:
			h.Until = millis(w.Item, "expires")
			h.Renewals++
		case holder != "":
			holds = append(holds, Hold{
				Token: token, Holder: withoutAttempt(holder), Day: dayOf(w.Item, "running"),
				From: w.At, Until: millis(w.Item, "expires"), TookOver: h != nil && !h.Released,
			})
		}
	}
	return holds
}

// withoutAttempt is who holds a lock; the store keeps the attempt behind it.
func withoutAttempt(holder string) string {
	name, _, _ := strings.Cut(holder, "#")
	return name
}

func text(it Item, attr string) string {
	if v, ok := it[attr].(*types.AttributeValueMemberS); ok {
		return v.Value
	}
	return ""
}

// number is a number as the store writes it.
func number(it Item, attr string) string {
	if v, ok := it[attr].(*types.AttributeValueMemberN); ok {
		return v.Value
	}
	return ""
}

func integer(it Item, attr string) int64 {
	n, err := strconv.ParseInt(number(it, attr), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func millis(it Item, attr string) time.Time { return time.UnixMilli(integer(it, attr)) }

// dayOf is the day of a mark in unix seconds, empty for none.
func dayOf(it Item, attr string) string {
	if n := integer(it, attr); n > 0 {
		return time.Unix(n, 0).UTC().Format(time.DateOnly)
	}
	return ""
}

// Settled is a result as it lies in the results table.
type Settled struct {
	Key    string
	Fence  string // the highest token that the store has seen for it
	Report Report
}

// Report is the value of a result: what the run that wrote it says of itself.
type Report struct {
	Count      int         `json:"count"`
	TotalCents int         `json:"total_cents"`
	Occurrence time.Time   `json:"occurrence"`
	Token      json.Number `json:"token"`
}

// day is the occurrence's day.
func (r Report) day() string { return r.Occurrence.Format(time.DateOnly) }

// reportOf reads a value. A value that cannot be read is an empty report, which matches nothing.
func reportOf(value []byte) Report {
	var r Report
	if json.Unmarshal(value, &r) != nil {
		return Report{}
	}
	return r
}

// settledOf reads a result.
func settledOf(it Item) Settled {
	value, _ := it["value"].(*types.AttributeValueMemberB)
	s := Settled{Key: text(it, "key"), Fence: number(it, "fence")}
	if value != nil {
		s.Report = reportOf(value.Value)
	}
	return s
}
