package bloblease

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/internal/escape"
	"github.com/cloudlease/cloudlease/internal/storeerr"
	"github.com/cloudlease/cloudlease/lease"
)

// The names of a guarded blob's metadata, and of its tag.
const (
	metaFence       = "fence"
	metaFenceHolder = "fenceholder"
	tagFence        = "fence"
)

// GuardOptions are a guard's options. The zero value of every field is its documented default.
type GuardOptions struct {
	// Prefix begins the names of the guarded blobs. Default "guarded/"; like Options.Prefix.
	Prefix string
	// Tags compares tokens in a condition on the blob's index tags: one request for a blob that this guard has written or
	// read before, whoever has written it since. It needs an account with index tags (none with hierarchical namespace) and
	// the permission to write them (Storage Blob Data Owner). A write of the same holder and token that was given up, and
	// arrives after a later one, passes: take it where a holder writes a key once. Without it, tokens are compared in the blob's metadata as they
	// were read, and the write is conditioned on the blob's ETag.
	Tags bool
	// ContentType is that of the blobs. Default "application/octet-stream".
	ContentType string
}

// Guard is a container of blobs that refuses stale writes. It implements fence.Guard. It is safe for concurrent use. All
// writers of a blob must have the same Tags: the metadata are the same, but a write without tags removes them.
type Guard struct {
	api   *container.Client
	place string
	opt   GuardOptions

	mu    sync.Mutex
	known map[string]version
}

// version is a guarded blob as it was last seen: by its ETag and what its metadata say.
type version struct {
	etag azcore.ETag
	fence.Entry
}

// NewGuard makes a guard of a container. It makes no request. nil options are all defaults.
func NewGuard(c *container.Client, o *GuardOptions) (*Guard, error) {
	if c == nil {
		return nil, lease.Invalid("configure", "", "the container client is nil")
	}
	g := &Guard{api: c, place: placeOf(c.URL()), known: map[string]version{}}
	if o != nil {
		g.opt = *o
	}
	if g.opt.Prefix == "" {
		g.opt.Prefix = guardPart
	}
	if g.opt.ContentType == "" {
		g.opt.ContentType = "application/octet-stream"
	}
	return g, checkPrefix(g.opt.Prefix)
}

// BlobName is the name of the blob that key is kept in: the prefix and the key, with what is not a letter, a digit, '-' or '_'
// written as =XX.
func (g *Guard) BlobName(key string) string { return g.opt.Prefix + escape.Name(key) }

const maxBlobName = 1024

// putTries bounds the rounds of a Put against other writers of the same key, each of which one of them wins.
const putTries = 100

// Put implements fence.Guard. A new key is one request; a key that this guard knows one more where it has been written since
// (none with Tags); any other existing key three. A refusal costs one read, to say who has written. The SDK's own retries
// apply; they are safe, because a write that was stored passes again.
func (g *Guard) Put(ctx context.Context, key string, value []byte, token lease.Token, holder string) error {
	if err := fence.Check(key, token, holder); err != nil {
		return err
	}
	if len(g.BlobName(key)) > maxBlobName {
		return lease.Invalid("put", key, "the blob's name would have more than %d characters", maxBlobName)
	}
	w := write{g, key, value, token, holder}
	have, known := g.lastSeen(key)
	for range putTries {
		err := errNotTried
		switch {
		case !known:
			err = w.send(ctx, &blob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)})
		case fence.Admits(have.Entry, token, holder): // otherwise it is read again, to say who has written
			err = w.send(ctx, w.condition(have.etag))
		}
		if err == nil {
			return nil
		}
		if class, _ := judge(ctx, writing, err); !errors.Is(err, errNotTried) && !errors.Is(class, errChanged) {
			return failAt(ctx, g.place, "put", key, writing, err)
		}
		var there bool
		if have, there, err = g.head(ctx, key); err != nil {
			return err
		}
		if known = there; there && !fence.Admits(have.Entry, token, holder) {
			return &fence.StaleError{Key: key, Token: token, Seen: have.Token, Holder: have.Holder}
		}
	}
	return &lease.Error{
		Op: "put", Store: g.place, Name: key, Class: lease.ErrUnavailable,
		Err: errors.New("others wrote between all tries"), Hint: "try again",
	}
}

var errNotTried = errors.New("not tried")

// write is one Put.
type write struct {
	*Guard
	key    string
	value  []byte
	token  lease.Token
	holder string
}

// mark is the fence's tag: token and holder in one value that sorts by the token. A tag has no room for every holder's name,
// so it is its hash.
func (w write) mark() (token, full string) {
	sum := sha256.Sum256([]byte(w.holder))
	token = fmt.Sprintf("%016d", w.token)
	return token, token + "." + encoding.EncodeToString(sum[:16])
}

// condition lets the write pass if nobody has written with a higher token, or an equal one of another holder.
func (w write) condition(seen azcore.ETag) *blob.ModifiedAccessConditions {
	if !w.opt.Tags {
		return &blob.ModifiedAccessConditions{IfMatch: &seen}
	}
	token, full := w.mark()
	return &blob.ModifiedAccessConditions{
		IfTags: new(fmt.Sprintf("%q < '%s' OR %q = '%s'", tagFence, token, tagFence, full)),
	}
}

func (w write) send(ctx context.Context, c *blob.ModifiedAccessConditions) error {
	if err := storeerr.Sendable(ctx); err != nil {
		return err
	}
	o := &blockblob.UploadOptions{
		Metadata: map[string]*string{
			metaFence:       new(strconv.FormatUint(uint64(w.token), 10)),
			metaFenceHolder: new(encoding.EncodeToString([]byte(w.holder))),
		},
		HTTPHeaders:      &blob.HTTPHeaders{BlobContentType: &w.opt.ContentType},
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: c},
	}
	if w.opt.Tags {
		_, full := w.mark()
		o.Tags = map[string]string{tagFence: full}
	}
	resp, err := w.api.NewBlockBlobClient(w.BlobName(w.key)).Upload(ctx, streaming.NopCloser(bytes.NewReader(w.value)), o)
	if err == nil && resp.ETag != nil {
		w.saw(w.key, version{*resp.ETag, fence.Entry{Token: w.token, Holder: w.holder}})
	}
	return err
}

func (g *Guard) saw(key string, v version) {
	g.mu.Lock()
	defer g.mu.Unlock()
	keep(g.known, key, v)
}

func (g *Guard) lastSeen(key string) (version, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, ok := g.known[key]
	return v, ok
}

// head reads what a guarded blob's metadata say, for a Put: an answer that is lost leaves the Put in doubt.
func (g *Guard) head(ctx context.Context, key string) (v version, there bool, err error) {
	resp, err := g.api.NewBlobClient(g.BlobName(key)).GetProperties(ctx, nil)
	if missing(err) {
		return v, false, nil
	}
	if err != nil {
		return v, false, failAt(ctx, g.place, "put", key, writing, err)
	}
	v.Entry, err = g.entryOf("put", key, resp.Metadata)
	if err != nil || resp.ETag == nil {
		return v, true, err
	}
	v.etag = *resp.ETag
	g.saw(key, v)
	return v, true, nil
}

// Get implements fence.Guard: one request.
func (g *Guard) Get(ctx context.Context, key string) (fence.Entry, error) {
	const op = "get"
	if key == "" {
		return fence.Entry{}, lease.Invalid(op, key, "the key is empty")
	}
	resp, err := g.api.NewBlobClient(g.BlobName(key)).DownloadStream(ctx, nil)
	if missing(err) {
		return fence.Entry{}, nil
	}
	if err != nil {
		return fence.Entry{}, failAt(ctx, g.place, op, key, reading, err)
	}
	value, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return fence.Entry{}, failAt(ctx, g.place, op, key, reading, err)
	}
	e, err := g.entryOf(op, key, resp.Metadata)
	if err != nil {
		return e, err
	}
	if resp.ETag != nil {
		g.saw(key, version{*resp.ETag, e})
	}
	e.Value = value
	return e, nil
}

func (g *Guard) entryOf(op, key string, metadata map[string]*string) (fence.Entry, error) {
	d := decoder{m: map[string]string{}}
	for k, v := range metadata {
		if v != nil {
			d.m[strings.ToLower(k)] = *v
		}
	}
	e := fence.Entry{Token: lease.Token(d.number(metaFence, int64(lease.MaxToken))), Holder: string(d.bytes(metaFenceHolder))} //nolint:gosec // not negative
	if d.err == nil && e.Token == 0 {
		d.err = errors.New("the blob has no fence: it was not written through a guard")
	}
	if d.err != nil {
		return fence.Entry{}, &lease.Error{
			Op: op, Store: g.place, Name: key, Class: lease.ErrMisconfigured, Err: d.err, Hint: "guard a prefix of its own",
		}
	}
	return e, nil
}
