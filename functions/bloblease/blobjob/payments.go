package blobjob

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/cloudlease/cloudlease/functions/internal/settlement"
	"github.com/cloudlease/cloudlease/lease"
)

// Payments are a container with one blob per day, such as 2026-03-01.jsonl: one payment per line, as
// {"id":"p001","cents":1200,"currency":"EUR"}.
type Payments struct {
	*container.Client
}

const maxLine = 64 << 10

// Day implements settlement.Payments. A day without payments has an empty blob: a missing one is an error, because it may only
// not be there yet.
func (p Payments) Day(ctx context.Context, day string) iter.Seq2[settlement.Payment, error] {
	return func(yield func(settlement.Payment, error) bool) {
		name := day + ".jsonl"
		resp, err := p.NewBlobClient(name).DownloadStream(ctx, nil)
		switch {
		case bloberror.HasCode(err, bloberror.BlobNotFound):
			yield(settlement.Payment{}, fmt.Errorf("the blob %s is not there; a day without payments has an empty one", name))
			return
		case err != nil:
			yield(settlement.Payment{}, unread(name, err))
			return
		}
		body := resp.NewRetryReader(ctx, nil)
		defer func() { _ = body.Close() }() // it was only read
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, maxLine)
		for n := 1; lines.Scan(); n++ {
			if len(bytes.TrimSpace(lines.Bytes())) == 0 {
				continue
			}
			payment, err := decode(lines.Bytes())
			if err != nil {
				err = fmt.Errorf("line %d of the blob %s: %w", n, name, err)
			}
			if !yield(payment, err) || err != nil {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(settlement.Payment{}, unread(name, err))
		}
	}
}

// unread says that a blob could not be read, and gives the error its class, so that an alarm tells a deployment that is wrong from a
// service that is out. The error of a failed connection repeats the URL, and so a signature that is in it.
func unread(name string, err error) error {
	failed := &lease.Error{Op: "read", Store: "Azure Blob Storage", Name: name}
	refused, answered := errors.AsType[*azcore.ResponseError](err)
	switch {
	case answered && refused.StatusCode == http.StatusForbidden:
		failed.Class, failed.Hint = lease.ErrDenied, "the identity needs blobs/read on the container of PAYMENTS_CONTAINER"
	case bloberror.HasCode(err, bloberror.ContainerNotFound):
		failed.Class, failed.Hint = lease.ErrMisconfigured, "set PAYMENTS_CONTAINER to a container of the account"
	}
	if failed.Class != nil {
		failed.Err = fmt.Errorf("the answer has status %d and code %s", refused.StatusCode, refused.ErrorCode)
		return failed
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	return fmt.Errorf("read the blob %s: %w", name, err)
}

func decode(line []byte) (settlement.Payment, error) {
	var in struct {
		ID       string `json:"id"`
		Cents    *int64 `json:"cents"`
		Currency string `json:"currency"`
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return settlement.Payment{}, fmt.Errorf("no payment: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) { // a payment that nobody counts
		return settlement.Payment{}, errors.New("there is more behind the payment; a line has one")
	}
	if in.ID == "" || in.Cents == nil || in.Currency == "" {
		return settlement.Payment{}, errors.New(`a payment has an "id", whole "cents" and a "currency"`)
	}
	return settlement.Payment{ID: in.ID, Cents: *in.Cents, Currency: in.Currency}, nil
}
