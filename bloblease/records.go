package bloblease

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/cloudlease/cloudlease/internal/escape"
	"github.com/cloudlease/cloudlease/lease"
)

// MaxRecord is the largest value of a record, in bytes. It is kept in a blob's metadata, so that a scan reads thousands of
// records with one request.
const MaxRecord = 5000

// The names of a record's metadata.
const (
	metaRevision = "revision"
	metaData     = "data"
)

func putEmpty(ctx context.Context, client *blockblob.Client, metadata map[string]*string, c *blob.AccessConditions) error {
	_, err := client.Upload(ctx, streaming.NopCloser(bytes.NewReader(nil)), &blockblob.UploadOptions{Metadata: metadata, AccessConditions: c})
	return err
}

func (s *Store) recordClient(key string) *blockblob.Client {
	return s.api.NewBlockBlobClient(s.recordPrefix() + escape.Name(key))
}

// Load implements lease.Records: one request.
func (s *Store) Load(ctx context.Context, key string) (lease.Record, error) {
	const op = "load"
	var metadata map[string]*string
	header, err := s.send(ctx, func(ctx context.Context) error {
		resp, err := s.recordClient(key).GetProperties(ctx, nil)
		metadata = resp.Metadata
		return err
	})
	switch {
	case missing(err):
		return lease.Record{Key: key}, nil
	case err != nil:
		return lease.Record{}, s.fail(ctx, op, key, reading, err)
	}
	rec, err := readRecord(key, metadata)
	if err != nil {
		return rec, s.foreign(op, key, err)
	}
	s.sawEntry(rec, azcore.ETag(header.Get("ETag")))
	return rec, nil
}

func readRecord(key string, metadata map[string]*string) (lease.Record, error) {
	d := decoder{m: map[string]string{}}
	for k, v := range metadata {
		if v != nil {
			d.m[strings.ToLower(k)] = *v
		}
	}
	rec := lease.Record{Key: key, Version: uint64(d.number(metaRevision, int64(lease.MaxToken))), Value: d.bytes(metaData)} //nolint:gosec // not negative
	if d.err == nil && rec.Version == 0 {
		d.err = errors.New("the blob is not a record: its metadata has no revision")
	}
	return rec, d.err
}

func entryKey(rec lease.Record) string { return strconv.FormatUint(rec.Version, 10) + " " + rec.Key }

func (s *Store) sawEntry(rec lease.Record, etag azcore.ETag) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep(s.entries, entryKey(rec), etag)
}

func (s *Store) entry(rec lease.Record) (azcore.ETag, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	etag, ok := s.entries[entryKey(rec)]
	delete(s.entries, entryKey(rec)) // a version is replaced once
	return etag, ok
}

// Swap implements lease.Records: one request, and one more if this store has not read the version it replaces. Records are never
// deleted: a lifecycle rule on the blobs' prefix may do so after keep.
func (s *Store) Swap(ctx context.Context, old lease.Record, value []byte, _ time.Duration) (lease.Record, error) {
	const op = "swap"
	if len(value) > MaxRecord {
		return lease.Record{}, lease.Invalid(op, old.Key, "the value has %d bytes, more than %d", len(value), MaxRecord)
	}
	next := lease.Record{Key: old.Key, Version: old.Version + 1, Value: value}
	c := &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)}}
	if old.Version != 0 {
		etag, known := s.entry(old)
		if !known {
			have, err := s.Load(ctx, old.Key)
			if err != nil {
				return lease.Record{}, err
			}
			if etag, known = s.entry(have); !known || have.Version != old.Version {
				return lease.Record{}, s.conflict(op, old.Key)
			}
		}
		c = conditions("", etag)
	}
	metadata := map[string]*string{metaRevision: new(strconv.FormatUint(next.Version, 10))}
	if len(value) > 0 {
		metadata[metaData] = new(encoding.EncodeToString(value))
	}
	header, err := s.send(ctx, func(ctx context.Context) error {
		return putEmpty(ctx, s.recordClient(old.Key), metadata, c)
	})
	if err != nil {
		if class, _ := judge(ctx, writing, err); errors.Is(class, errChanged) {
			return lease.Record{}, s.conflict(op, old.Key)
		}
		return lease.Record{}, s.fail(ctx, op, old.Key, writing, err)
	}
	s.sawEntry(next, azcore.ETag(header.Get("ETag")))
	return next, nil
}

func (s *Store) conflict(op, key string) error {
	return &lease.Error{Op: op, Store: s.place, Name: key, Class: lease.ErrConflict, Err: errors.New("read it again")}
}

// Scan implements lease.Records: one request for up to 5000 records.
func (s *Store) Scan(ctx context.Context, prefix string) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		for item, err := range s.blobs(ctx, "list", s.recordPrefix(), prefix) {
			var rec lease.Record
			if err == nil {
				if rec, err = readRecord(item.key, item.Metadata); err != nil {
					err = s.foreign("list", item.key, err)
				}
			}
			if err != nil {
				yield(lease.Record{}, err)
				return
			}
			if !yield(rec, nil) {
				return
			}
		}
	}
}
