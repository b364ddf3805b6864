package blobfake

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The states of a lease, as the service calls them.
const (
	available = ""
	leased    = "leased"
	breaking  = "breaking"
	broken    = "broken"
	expired   = "expired"
)

// leaseState is a blob's lease.
type leaseState struct {
	state    string
	id       string
	infinite bool
	duration time.Duration
	until    time.Time // the end of a lease, or of its breaking
}

var (
	errHeld          = &Error{http.StatusConflict, "LeaseAlreadyPresent"}
	errBreaking      = &Error{http.StatusConflict, "LeaseIsBreakingAndCannotBeAcquired"}
	errBroken        = &Error{http.StatusConflict, "LeaseIsBrokenAndCannotBeRenewed"}
	errMismatch      = &Error{http.StatusConflict, "LeaseIdMismatchWithLeaseOperation"}
	errNotPresent    = &Error{http.StatusConflict, "LeaseNotPresentWithLeaseOperation"}
	errMissing       = &Error{http.StatusPreconditionFailed, "LeaseIdMissing"}
	errWriteMismatch = &Error{http.StatusPreconditionFailed, "LeaseIdMismatchWithBlobOperation"}
	errWriteNone     = &Error{http.StatusPreconditionFailed, "LeaseNotPresentWithBlobOperation"}
	errLost          = &Error{http.StatusPreconditionFailed, "LeaseLost"}
)

// update lets time pass.
func (l *leaseState) update(now time.Time) {
	switch {
	case l.state == leased && !l.infinite && !now.Before(l.until):
		l.state = expired
	case l.state == breaking && !now.Before(l.until):
		l.state = broken
	}
}

func (l *leaseState) locked() bool { return l.state == leased || l.state == breaking }

// checkWrite tells whether a write with this lease id may pass.
func (l *leaseState) checkWrite(id string) *Error {
	switch {
	case l.locked() && id == "":
		return errMissing
	case l.locked() && !strings.EqualFold(id, l.id):
		return errWriteMismatch
	case !l.locked() && id != "" && l.state == expired && strings.EqualFold(id, l.id):
		return errLost
	case !l.locked() && id != "":
		return errWriteNone
	}
	return nil
}

// written ends what is left of a lease that is over: it cannot be renewed any more.
func (l *leaseState) written() {
	if !l.locked() {
		*l = leaseState{}
	}
}

func (l *leaseState) describe() (state, status, duration string) {
	state, status = l.state, "unlocked"
	if state == available {
		state = "available"
	}
	if l.locked() {
		status = "locked"
	}
	if l.state == leased {
		duration = "fixed"
		if l.infinite {
			duration = "infinite"
		}
	}
	return state, status, duration
}

// lease answers the operations on a blob's lease.
func (c *call) lease() *Error {
	b := c.find()
	if b == nil {
		return errNoBlob
	}
	held := b.held
	status, refused := c.operate(&held)
	if e := c.conditions(b); e != nil && (refused == nil || !c.LeaseFirst) {
		return e
	}
	if refused != nil {
		return refused
	}
	b.held = held
	c.describe(b)
	c.w.Header().Del("x-ms-blob-sequence-number")
	if held.id != "" && held.state == leased {
		c.w.Header().Set("x-ms-lease-id", held.id)
	}
	c.w.WriteHeader(status)
	return nil
}

// operate does to l what the request asks for.
func (c *call) operate(l *leaseState) (status int, e *Error) {
	h := c.r.Header
	id := h.Get("x-ms-lease-id")
	switch h.Get("x-ms-lease-action") {
	case "acquire":
		return http.StatusCreated, l.acquire(h.Get("x-ms-proposed-lease-id"), h.Get("x-ms-lease-duration"), c.now)
	case "renew":
		if c.Azurite && l.state == expired {
			id = l.id
		}
		return http.StatusOK, l.renew(id, c.now)
	case "release":
		if e = l.owned(id); e == nil {
			*l = leaseState{}
		}
		return http.StatusOK, e
	case "break":
		left, e := l.breakIn(h.Get("x-ms-lease-break-period"), c.now)
		if e == nil {
			c.w.Header().Set("x-ms-lease-time", strconv.Itoa(int((left+time.Second-1)/time.Second)))
		}
		return http.StatusAccepted, e
	}
	return 0, errHeader
}

func (l *leaseState) acquire(id, duration string, now time.Time) *Error {
	seconds, err := strconv.Atoi(duration)
	if err != nil || seconds != -1 && (seconds < 15 || seconds > 60) || id == "" {
		return errHeader
	}
	switch {
	case l.state == breaking && strings.EqualFold(id, l.id):
		return errBreaking
	case l.locked() && !strings.EqualFold(id, l.id):
		return errHeld
	}
	*l = leaseState{state: leased, id: id, infinite: seconds == -1, duration: time.Duration(seconds) * time.Second}
	l.until = now.Add(l.duration)
	return nil
}

// owned is nil if id is that of the lease, which may be over.
func (l *leaseState) owned(id string) *Error {
	if l.state == available || !strings.EqualFold(id, l.id) {
		return errMismatch
	}
	return nil
}

func (l *leaseState) renew(id string, now time.Time) *Error {
	if e := l.owned(id); e != nil {
		return e
	}
	if l.state == breaking || l.state == broken {
		return errBroken
	}
	l.state, l.until = leased, now.Add(l.duration)
	return nil
}

func (l *leaseState) breakIn(period string, now time.Time) (left time.Duration, e *Error) {
	if l.state == available {
		return 0, errNotPresent
	}
	if !l.locked() {
		l.state = broken
		return 0, nil
	}
	end := now // an infinite lease breaks at once
	if !l.infinite || l.state == breaking {
		end = l.until
	}
	if period != "" {
		seconds, err := strconv.Atoi(period)
		if err != nil || seconds < 0 || seconds > 60 {
			return 0, errHeader
		}
		asked := now.Add(time.Duration(seconds) * time.Second)
		if l.infinite && l.state == leased || asked.Before(end) {
			end = asked
		}
	}
	l.state, l.until = breaking, end
	l.update(now)
	return max(end.Sub(now), 0), nil
}
