package dynamolock

import (
	"context"
	"maps"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cloudlease/cloudlease/lease"
)

// Conditions and updates of the holder. They go by token and holder, not by the last nonce: a renewal that was stored but not
// answered must not make the holder lose its own lease.
var (
	ownerNames = map[string]string{"#v": attrVersion, "#h": attrHolder, "#n": attrNonce, "#e": attrExpires}
	saveNames  = map[string]string{"#v": attrVersion, "#h": attrHolder, "#n": attrNonce, "#e": attrExpires, "#b": attrValue}
	renewWhen  = "#v = :v AND #h = :h AND #e <= :e"
	saveWhen   = "#v = :v AND #h = :h AND #e < :e"
	renewSet   = "SET #e = :e, #n = :n"
	saveSet    = "SET #e = :e, #n = :n, #b = :b"
)

// Renew implements lease.Store: one write. An end never moves back, so that a delayed older renewal cannot shorten a newer
// one; it never makes an item.
func (s *Store) Renew(ctx context.Context, g lease.Grant) (lease.Grant, error) {
	return s.prolong(ctx, "renew", g, renewSet, ownerNames, nil)
}

// Save implements lease.Store: one write, which renews as well. Its end lies above that of every earlier Save of the grant and
// of what is stored, so that an earlier one that arrives late is refused and cannot bring its value back.
func (s *Store) Save(ctx context.Context, g lease.Grant, value []byte) (lease.Grant, error) {
	return s.prolong(ctx, "save", g, saveSet, saveNames, item{":b": bin(value)})
}

func (s *Store) prolong(ctx context.Context, op string, g lease.Grant, set string, names map[string]string, extra item) (lease.Grant, error) {
	sent, when := s.clock(), &renewWhen
	expires := g.Expires.UnixMilli()
	if earliest, ok := s.time.Earliest(sent); ok {
		expires = max(expires, earliest.Add(g.TTL).UnixMilli())
	}
	if extra != nil {
		expires, when = s.nextEnd(g, expires), &saveWhen
	}
	nonce := newNonce()
	values := item{":v": num(g.Token), ":h": str(holderOf(g.Request)), ":e": num(expires), ":n": str(nonce)}
	maps.Copy(values, extra)
	_, err := s.update(ctx, &dynamodb.UpdateItemInput{
		Key: keyOf(g.Name), UpdateExpression: &set, ConditionExpression: when,
		ExpressionAttributeNames: names, ExpressionAttributeValues: values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err != nil {
		sight, err := s.refusal(ctx, op, g.Name, err)
		if err != nil {
			return g, err
		}
		rec := sight.rec
		if rec.version != g.Token || rec.holder != holderOf(g.Request) {
			s.forgetSaves(g)
			return g, lost(op, s.table, g.Name, rec)
		}
		if extra != nil { // an unanswered renewal is stored, the value is not
			g.Expires = time.UnixMilli(rec.expires)
			return s.prolong(ctx, op, g, set, names, extra)
		}
		expires, nonce = rec.expires, rec.nonce
	}
	g.Proof, g.Expires = nonce, time.UnixMilli(expires)
	g.Sent, g.Trust = sent, s.trust(sent, expires, g.TTL)
	return g, nil
}

// nextEnd is the end that a Save of g writes, if end would do otherwise. It is remembered, sent or not.
func (s *Store) nextEnd(g lease.Grant, end int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.saves[g.Attempt]
	end = max(end, g.Expires.UnixMilli()+1, last+1)
	if len(s.saves) >= maxSeen && last == 0 {
		clear(s.saves)
	}
	s.saves[g.Attempt] = end
	return end
}

func (s *Store) forgetSaves(g lease.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.saves, g.Attempt)
}

// Release implements lease.Store: one write, also while a renewal is under way, which then finds no holder. The item stays,
// so that the version is not forgotten.
func (s *Store) Release(ctx context.Context, g lease.Grant, f lease.Final) error {
	s.forgetSaves(g)
	w := releaseOf(g, f)
	_, err := s.update(ctx, &dynamodb.UpdateItemInput{
		Key: keyOf(g.Name), UpdateExpression: &w.set, ConditionExpression: &w.condition,
		ExpressionAttributeNames: w.names, ExpressionAttributeValues: w.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err != nil {
		sight, err := s.refusal(ctx, "release", g.Name, err)
		if err != nil {
			return err
		}
		return s.judgeRelease(g, f, sight.rec)
	}
	if g.Token != 0 {
		s.released(g, f)
	}
	return nil
}

// judgeRelease says what a refused release means.
func (s *Store) judgeRelease(g lease.Grant, f lease.Final, rec record) error {
	switch {
	case rec.free() && !rec.absent() && rec.nonce == g.Attempt:
		return nil // an earlier try of this release was stored
	case f.Marks != nil && f.Marks.Finished > g.Marks.Finished && rec.marks.Finished >= f.Marks.Finished:
		return nil // it was stored, and the lock has been taken since
	}
	return lost("release", s.table, g.Name, rec)
}

type freeing struct {
	set, condition string
	names          map[string]string
	values         item
}

// releaseOf is the write that frees g. Its nonce is g's attempt, so that a retry knows its own first try.
func releaseOf(g lease.Grant, f lease.Final) freeing {
	w := freeing{
		set:       "SET #h = :free, #n = :n, #r = :zero",
		condition: "#h = :h",
		names:     map[string]string{"#h": attrHolder, "#n": attrNonce, "#r": attrRunning},
		values: item{
			":free": str(""), ":n": str(g.Attempt), ":h": str(holderOf(g.Request)), ":zero": num[int64](0),
		},
	}
	if g.Token != 0 {
		w.condition += " AND #v = :v"
		w.names["#v"], w.values[":v"] = attrVersion, num(g.Token)
	}
	if f.Value != nil {
		w.set += ", #b = :b"
		w.names["#b"], w.values[":b"] = attrValue, bin(f.Value)
	}
	if f.Marks != nil {
		w.set += ", #s = :s, #f = :f"
		w.names["#s"], w.names["#f"] = attrStarted, attrFinished
		w.values[":s"], w.values[":f"] = num(f.Marks.Started), num(f.Marks.Finished)
	}
	return w
}

// released remembers the record that a release left, so that the next acquire knows its version.
func (s *Store) released(g lease.Grant, f lease.Final) {
	rec := record{
		name: g.Name, version: g.Token, nonce: g.Attempt, expires: g.Expires.UnixMilli(), ttl: g.TTL.Milliseconds(), marks: g.Marks,
	}
	if f.Marks != nil {
		rec.marks = *f.Marks
	}
	rec.marks.Running = 0
	s.saw(rec, s.clock())
}
