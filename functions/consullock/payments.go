package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"

	"github.com/hashicorp/consul/api"

	"github.com/cloudlease/cloudlease/functions/internal/settlement"
	"github.com/cloudlease/cloudlease/lease"
)

// payments are one key per day, such as payments/2026-03-01, whose value is a JSON array of payments such as
// {"id":"p001","cents":1200,"currency":"EUR"}. A key per payment would not do: Consul leaves out of a listing what may not be
// read without a word, so that a part would pass for the whole.
type payments struct {
	kv     *api.KV
	prefix string
}

// Day implements settlement.Payments by one consistent read. A day without payments has an empty array: a missing key is an
// error, because it may only not be there yet.
func (p *payments) Day(ctx context.Context, day string) iter.Seq2[settlement.Payment, error] {
	return func(yield func(settlement.Payment, error) bool) {
		all, err := p.read(ctx, p.prefix+day)
		if err != nil {
			yield(settlement.Payment{}, err)
			return
		}
		for n, in := range all {
			payment, err := in.check()
			if err != nil {
				err = fmt.Errorf("payment %d of the key %s%s: %w", n+1, p.prefix, day, err)
			}
			if !yield(payment, err) || err != nil {
				return
			}
		}
	}
}

func (p *payments) read(ctx context.Context, key string) ([]entry, error) {
	pair, _, err := p.kv.Get(key, new(api.QueryOptions{RequireConsistent: true}).WithContext(ctx))
	refused, answered := errors.AsType[api.StatusError](err)
	switch {
	case answered && refused.Code == http.StatusForbidden:
		return nil, &lease.Error{
			Op: "read", Store: "Consul", Name: key, Class: lease.ErrDenied, Err: errors.New("the answer has status 403"),
			Hint: fmt.Sprintf("the ACL token needs the rule key_prefix %q { policy = \"read\" }", p.prefix),
		}
	case answered: // whatever answered may repeat in its text what it was sent
		return nil, fmt.Errorf("read the key %s: the answer has status %d", key, refused.Code)
	case err != nil:
		return nil, fmt.Errorf("read the key %s: %w", key, err)
	case pair == nil:
		return nil, fmt.Errorf("the key %s is not there; a day without payments has the value []", key)
	}
	all, err := decode(pair.Value)
	if err != nil {
		return nil, fmt.Errorf("the key %s is no JSON array of payments: %w", key, err)
	}
	return all, nil
}

// entry is one payment as it is written down.
type entry struct {
	ID       string `json:"id"`
	Cents    *int64 `json:"cents"`
	Currency string `json:"currency"`
}

func (e entry) check() (settlement.Payment, error) {
	if e.ID == "" || e.Cents == nil || e.Currency == "" {
		return settlement.Payment{}, errors.New(`a payment has an "id", whole "cents" and a "currency"`)
	}
	return settlement.Payment{ID: e.ID, Cents: *e.Cents, Currency: e.Currency}, nil
}

func decode(value []byte) ([]entry, error) {
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	var all []entry
	if err := d.Decode(&all); err != nil {
		return nil, err
	}
	if all == nil {
		return nil, errors.New("it is null")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) { // payments that nobody counts
		return nil, errors.New("there is more behind it")
	}
	return all, nil
}
