// Package blobfake is Azure Blob Storage in this process, as far as leases need it: the REST protocol of containers, page and
// block blobs, metadata, sequence numbers, tags, conditions, leases and listings. Tests call it through emulator.Transport in
// virtual time, or serve it on the loopback address with emulator.Serve.
//
// It follows the service's documentation where Azurite differs: a lease that has expired cannot be renewed after its blob was
// written, a lease id that is not the lease's is refused, and a leased blob refuses a write without an id before it looks at
// other conditions. Service.Azurite makes it do as Azurite does. It checks no signatures, and it refuses with 400 what it does not know, rather than guess.
//
// It is not the service: expiry is exact to the millisecond, where Azure takes up to a minute more, and there are no
// snapshots, versions, tiers or policies.
package blobfake
