package bloblease

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/cloudlease/cloudlease/internal/escape"
	"github.com/cloudlease/cloudlease/lease"
)

// load reads the blob of a lock. The service's reads are strongly consistent; a secondary region is never asked.
func (s *Store) load(ctx context.Context, op, name string) (record, error) {
	var p properties
	looked := s.clock()
	_, err := s.send(ctx, func(ctx context.Context) error {
		resp, err := s.blob(name).GetProperties(ctx, nil)
		if err == nil && resp.ETag != nil && resp.BlobType != nil {
			p = properties{*resp.ETag, *resp.BlobType, resp.BlobSequenceNumber, resp.LeaseState, resp.LeaseDuration, resp.Metadata}
		}
		return err
	})
	if missing(err) {
		rec := record{name: name}
		s.forget(name)
		return rec, nil
	}
	if err != nil {
		return record{}, s.fail(ctx, op, name, reading, err)
	}
	rec, err := s.read(name, p)
	if err != nil {
		return rec, s.foreign(op, name, err)
	}
	rec.looked = looked
	if rec.fault == nil {
		s.saw(rec)
	}
	return rec, nil
}

// Inspect implements lease.Store: one request. The service does not say when a lease ends.
func (s *Store) Inspect(ctx context.Context, name string) (lease.Info, error) {
	rec, err := s.load(ctx, "inspect", name)
	if err != nil {
		return lease.Info{}, err
	}
	return rec.describe(), nil
}

// List implements lease.Lister: one request for up to 5000 locks. A blob that is not a lock's ends it with an error.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[lease.Info, error] {
	return func(yield func(lease.Info, error) bool) {
		for item, err := range s.blobs(ctx, "list", s.lockPrefix(), prefix) {
			var rec record
			if err == nil {
				rec, err = s.listed(item)
			}
			if err != nil {
				yield(lease.Info{}, err)
				return
			}
			if !yield(rec.describe(), nil) {
				return
			}
		}
	}
}

// listed makes a record of a listed blob. It is not remembered: a listing of many would push out what is in use.
func (s *Store) listed(item found) (record, error) {
	p := item.Properties
	if p == nil || p.ETag == nil || p.BlobType == nil {
		return record{}, s.foreign("list", item.key, fmt.Errorf("the listing does not describe the blob"))
	}
	rec, err := s.read(item.key, properties{quoted(*p.ETag), *p.BlobType, p.BlobSequenceNumber, p.LeaseState, p.LeaseDuration, item.Metadata})
	if err != nil {
		return rec, s.foreign("list", item.key, err)
	}
	return rec, nil
}

// quoted is an ETag as it is in a header; listings have it without its quotes.
func quoted(etag azcore.ETag) azcore.ETag {
	if strings.HasPrefix(string(etag), `"`) {
		return etag
	}
	return azcore.ETag(strconv.Quote(string(etag)))
}

// found is a listed blob and the name that its own name escapes.
type found struct {
	*container.BlobItem
	key string
}

// blobs yields the blobs of a part of the store whose names escape one that starts with prefix, page after page.
func (s *Store) blobs(ctx context.Context, op, part, prefix string) iter.Seq2[found, error] {
	return func(yield func(found, error) bool) {
		pager := s.api.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{
			Prefix: new(part + escape.Name(prefix)), Include: container.ListBlobsInclude{Metadata: true},
		})
		for pager.More() {
			var page container.ListBlobsFlatResponse
			_, err := s.send(ctx, func(ctx context.Context) (err error) {
				page, err = pager.NextPage(ctx)
				return err
			})
			if err != nil {
				yield(found{}, s.fail(ctx, op, "", reading, err))
				return
			}
			if page.Segment == nil {
				continue
			}
			for _, item := range page.Segment.BlobItems {
				key, err := escape.Undo(strings.TrimPrefix(*item.Name, part))
				if err != nil {
					yield(found{}, s.foreign(op, "", err))
					return
				}
				if !yield(found{item, key}, nil) {
					return
				}
			}
		}
	}
}
