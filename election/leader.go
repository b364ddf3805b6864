package election

import (
	"context"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// Leader is who leads. The zero value: nobody, as far as is known.
type Leader struct {
	Elected  bool        // somebody leads
	Holder   string      // who; empty where the service does not say
	Token    lease.Token // of the term; 0 where the service does not say
	Self     bool        // this candidate leads
	Namesake bool        // another instance with this one's Options.Holder leads; see lease.Namesake
}

// sight is a look at the lock.
type sight struct {
	leader Leader
	at     lease.Reading // zero: never
}

// self is this candidate as the leader; false if it does not lead.
func (e *Election) self() (Leader, bool) {
	e.mu.Lock()
	t := e.term
	e.mu.Unlock()
	if t == nil || t.l.Err() != nil {
		return Leader{}, false
	}
	return Leader{Elected: true, Holder: t.l.Holder(), Token: t.l.Token(), Self: true}, true
}

// leaderOf is the leader of a lock that is held by holder. A lease of our own that is on record but over is nobody's.
func (e *Election) leaderOf(holder string, token lease.Token) Leader {
	if holder == e.c.Holder() {
		self, _ := e.self()
		return self
	}
	return Leader{Elected: true, Holder: holder, Token: token, Namesake: e.c.Namesake(holder)}
}

// saw notes who leads as the store has just said.
func (e *Election) saw(l Leader) {
	now := e.c.Clock()()
	e.mu.Lock()
	defer e.mu.Unlock()
	if changed := e.seen.leader != l; changed {
		e.tellChangeLocked()
	}
	e.seen = sight{leader: l, at: now}
}

// tellChangeLocked wakes whoever waits for a change.
func (e *Election) tellChangeLocked() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// Leader tells who leads now. It needs no Run: any process that may read the lock can observe. In the leader it makes no
// request; otherwise one, bounded by ctx and the client's CallTimeout, that the service answers from its present state. A
// leader whose lease has ended without a release is nobody.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	if self, leads := e.self(); leads {
		return self, nil
	}
	info, err := e.c.Inspect(ctx, e.name)
	if err != nil {
		return Leader{}, err
	}
	var l Leader
	if info.State == lease.Held {
		l = e.leaderOf(info.Holder, info.Token)
	}
	e.saw(l)
	return l, nil
}

// Changes tells who leads: first who leads now, then every change, until ctx ends and the channel is closed. A reader that is
// late gets the latest leader and not those in between; one that never reads blocks nobody. If the store cannot be asked for
// a TTL, it tells a zero Leader. It needs no Run.
func (e *Election) Changes(ctx context.Context) <-chan Leader {
	changes := make(chan Leader, 1)
	go func() {
		defer close(changes)
		var told *Leader
		for ctx.Err() == nil {
			e.mu.Lock()
			changed := e.changed
			e.mu.Unlock()
			if l, known := e.look(ctx); known && (told == nil || *told != l) {
				told = &l
				select {
				case <-changes: // not read yet, and no longer true
				default:
				}
				changes <- l // never blocks: nobody else sends
			}
			pause(ctx, changed, e.opt.Look)
		}
	}()
	return changes
}

// look tells who leads, from memory if that is fresh. It is false while there is nothing to tell. Subscribers take turns, so that
// one request serves those that a change has woken together.
func (e *Election) look(ctx context.Context) (Leader, bool) {
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return Leader{}, false
	}
	defer func() { <-e.turn }()
	if self, leads := e.self(); leads {
		return self, true
	}
	if s := e.lastSight(); !s.at.IsZero() && e.c.Clock()().Fast(s.at) < e.opt.Look/2 && !s.leader.Self {
		return s.leader, true
	}
	l, err := e.Leader(ctx)
	if err == nil {
		return l, true
	}
	s := e.lastSight()
	if s.at.IsZero() || ctx.Err() != nil {
		return Leader{}, false
	}
	return Leader{}, e.c.Clock()().Fast(s.at) > e.ttl
}

func (e *Election) lastSight() sight {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen
}

// pause waits for a change, for d at most.
func pause(ctx context.Context, changed <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
	}
}
