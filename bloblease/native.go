package bloblease

import (
	"errors"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/pageblob"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
)

// Native is the fence that the service itself keeps, for writes to the lock's own blob: its 512 bytes of content are free for
// the lock's users. A write passes only while the service has the lease, and nobody has claimed the lock since. It needs no
// other storage and costs no request more; it stops a late writer before the next holder has written anything.
type Native struct {
	lease *lease.Lease
	blob  *pageblob.Client
}

// Native is the native fence of a lease. Options.MetadataTokens leaves it without content to write to.
func (s *Store) Native(l *lease.Lease) (Native, error) {
	if s.opt.MetadataTokens {
		return Native{}, lease.Invalid("fence", l.Name(), "the locks' blobs are no page blobs; use a Guard")
	}
	return Native{lease: l, blob: s.blob(l.Name())}, nil
}

// Blob is a client of the lock's blob, for UploadPages with Options and for reads.
func (n Native) Blob() *pageblob.Client { return n.blob }

// Options are what a write must carry: the lease's id and the highest sequence number that lets it pass. The id is a secret
// while the lease lasts.
func (n Native) Options() *pageblob.UploadPagesOptions {
	g := n.lease.Grant()
	return &pageblob.UploadPagesOptions{
		AccessConditions: conditions(leaseID(g.Attempt, g.Token), ""),
		SequenceNumberAccessConditions: &pageblob.SequenceNumberAccessConditions{
			IfSequenceNumberLessThanOrEqualTo: new(int64(g.Token)), //nolint:gosec // below 2^53
		},
	}
}

// Refused turns the error of a fenced write into a *fence.StaleError if it was the fence that refused it, and returns it
// unchanged if it was something else.
func (n Native) Refused(err error) error {
	resp, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok || !strings.HasPrefix(resp.ErrorCode, "Lease") && resp.ErrorCode != "SequenceNumberConditionNotMet" && !missing(err) {
		return err
	}
	return &fence.StaleError{Key: n.lease.Name(), Token: n.lease.Token()}
}
