package leasetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/lease"
)

// deleteAll deletes the records of all locks while a host to which nothing bad happens holds them, and wants that it loses them
// and does not make them again.
func (x *simulation) deleteAll() {
	x.Helper()
	h := x.host("before the deletion")
	c := h.client()
	time.Sleep(x.TTL) // what the last holders had is not of this moment
	var held []*lease.Lease
	for i := range x.Names {
		held = append(held, h.acquire(c, x.name(i)))
	}
	time.Sleep(2 * x.TTL) // renewed
	for i, l := range held {
		x.deleted(x.name(i))
		x.await(l.Done(), x.TTL, "the loss of a lease whose record was deleted")
		if state := h.inspect(x.name(i)).State; state == lease.Held {
			x.Errorf("the record of %q is there again, and held, after its deletion", x.name(i))
		}
	}
}

// deleted deletes the record of name.
func (x *simulation) deleted(name string) {
	x.Helper()
	x.history.Forget(name)
	x.books.forget(name)
	x.backend.Delete(x.T, name)
}

// remakeAll deletes records soon after a grant. An older record may go at once; a new one after Remade.
func (x *simulation) remakeAll() {
	x.Helper()
	for i := range x.Names {
		name := x.name(i)
		for j := range 6 { // by hosts that may be told different times, and have not seen the record
			h := x.coldHost(fmt.Sprint("remaking ", i, j))
			if j > 0 {
				x.deleted(name)
			}
			h.touch(name)
			time.Sleep(x.Remade)
		}
		time.Sleep(x.TTL)
		for j := range 6 {
			before, after := x.coldHost(fmt.Sprint("before it ", i, j)), x.coldHost(fmt.Sprint("after it ", i, j))
			for range 8 { // they learn the time as well as can be
				before.inspect("no lock")
				after.inspect("no lock")
				time.Sleep(130 * time.Millisecond)
			}
			before.touch(name)
			x.deleted(name)
			after.touch(name)
			time.Sleep(2 * x.TTL)
		}
	}
}

// restoreAll puts records back to copies from before the newest grants.
func (x *simulation) restoreAll() {
	r, ok := x.backend.(Restorer)
	if !ok {
		return
	}
	x.Helper()
	for i := range x.Names {
		h := x.coldHost(fmt.Sprint("restoring ", i))
		h.touch(x.name(i))
		restore := r.Copy(x.T, x.name(i))
		time.Sleep(x.TTL)
		for range 3 {
			h.touch(x.name(i))
		}
		time.Sleep(x.TTL)
		x.books.forget(x.name(i))
		restore()
		x.coldHost(fmt.Sprint("restored ", i)).touch(x.name(i))
	}
}

// replaceService lets a host that knows the locks meet a service that does not: it must not be granted a token that was given out.
func (x *simulation) replaceService() {
	b, ok := x.backend.(Replaced)
	if !ok {
		return
	}
	x.Helper()
	h := x.coldHost("of the service that is replaced")
	for i := range x.Names {
		h.touch(x.name(i))
		time.Sleep(x.TTL)
		x.books.forget(x.name(i))
		b.Replace(func() {
			if g, err := h.store.TryAcquire(x.Context(), h.attempt(x.name(i))); err == nil {
				x.history.Hold(g.Name, h.name, g.Token, func() bool { return false })
			}
		})
		x.books.forget(x.name(i))
	}
}

// holdFromTheFuture lets a host to which nothing bad happens take a lock while the service's clock is an hour ahead, and keep it for
// a while of the next storm, in which the clock is right again. Then the host is gone.
func (x *simulation) holdFromTheFuture() {
	s, ok := x.backend.(Timed)
	if !ok {
		return
	}
	x.Helper()
	s.SetTime(time.Hour)
	h := x.host("from the future")
	l := h.acquire(h.client(), x.name(0))
	s.SetTime(0)
	_, err := h.store.Inspect(x.Context(), "no lock") // it learns the time
	require.NoError(x, err)
	time.AfterFunc(x.For/8, func() { h.faults.Add(Rule{Kind: BlackHole}) })
	_ = l
}
