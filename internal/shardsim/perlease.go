package shardsim

import (
	"math/rand/v2"
	"slices"
	"time"
)

// PerLease runs the schedule by the rule of the Kinesis Client Library 2.x: every shard's lease is renewed by itself every third
// of the TTL; every worker reads all leases every two TTLs, takes those that it has seen unchanged for a TTL, up to its share,
// and steals one from the worker with most if there are none. A stopped worker leaves its leases to run out. Refused writes
// are tried again after a second. It is a model in steps of 100 ms, without the network.
func (s Schedule) PerLease(seed uint64) []Sample {
	m := &model{Schedule: s, rand: rand.New(rand.NewPCG(seed, 1)), leases: make([]leased, s.Shards), capacity: float64(s.Capacity)}
	for i := range m.leases {
		m.leases[i] = leased{owner: -1, last: -1}
	}
	for range s.Workers {
		m.join()
	}
	var at time.Duration
	var events []event
	for _, p := range s.Phases {
		events = append(events, m.events(at, p)...)
		at += p.Length
	}
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	for m.now = 0; m.now < at; m.now += step {
		for len(events) > 0 && events[0].at <= m.now {
			events[0].do()
			events = events[1:]
		}
		m.step()
	}
	return m.samples
}

const step = 100 * time.Millisecond

type event struct {
	at time.Duration
	do func()
}

type leased struct {
	owner   int // -1: none
	last    int // the owner before
	counter uint32
	renewed time.Duration // when the owner's last renewal passed
	next    time.Duration // when it renews
	saved   time.Duration // when it stores a checkpoint
}

type fellow struct {
	alive bool
	wants []int // leases it is about to take
	scan  time.Duration
	seen  []uint32        // counters as last read
	since []time.Duration // when they were first read
}

type model struct {
	Schedule
	rand     *rand.Rand
	now      time.Duration
	leases   []leased
	fellows  []*fellow
	capacity float64
	tokens   float64
	samples  []Sample
	present  Sample
}

func (m *model) events(at time.Duration, p Phase) (out []event) {
	add := func(d time.Duration, do func()) { out = append(out, event{at + d, do}) }
	for i := range p.Join {
		add(time.Duration(i)*p.Every, m.join)
	}
	if p.Crash > 0 {
		add(0, func() { m.crash(p.Crash) })
	}
	if p.Restart {
		n := m.atEndOf(p.Name)
		for i := range n {
			add(time.Duration(i)*p.Every, func() { m.fellows[m.oldest()].alive = false })
			add(time.Duration(i)*p.Every+time.Second, m.join)
		}
	}
	add(0, func() {
		m.capacity = float64(m.Capacity)
		if p.Throttle {
			m.capacity = float64(m.Throttled)
		}
	})
	return out
}

// atEndOf is how many workers there are after all phases before the named one.
func (s Schedule) atEndOf(name string) int {
	n := s.Workers
	for _, p := range s.Phases {
		if p.Name == name {
			break
		}
		n += p.Join - p.Crash
	}
	return n
}

func (m *model) crash(n int) {
	var alive []*fellow
	for _, f := range m.fellows {
		if f.alive {
			alive = append(alive, f)
		}
	}
	for i := range n {
		alive[i*len(alive)/n].alive = false
	}
}

func (m *model) oldest() int {
	return slices.IndexFunc(m.fellows, func(f *fellow) bool { return f.alive })
}

func (m *model) join() {
	m.fellows = append(m.fellows, &fellow{
		alive: true, scan: m.now + time.Duration(m.rand.Int64N(int64(time.Second))),
		seen: make([]uint32, m.Shards), since: make([]time.Duration, m.Shards),
	})
}

// write takes one write of the table's capacity.
func (m *model) write(count *int) bool {
	if m.tokens < 1 {
		m.present.Refused++
		return false
	}
	m.tokens--
	*count++
	return true
}

func (m *model) step() {
	m.tokens = min(m.tokens+m.capacity*step.Seconds(), m.capacity)
	for _, i := range m.rand.Perm(len(m.leases)) {
		l := &m.leases[i]
		if l.owner < 0 || !m.fellows[l.owner].alive {
			continue
		}
		if m.now-l.renewed > m.TTL { // its owner gives it up
			l.last, l.owner = l.owner, -1
			m.present.Lost++
			continue
		}
		if m.now >= l.next {
			l.next = m.now + m.spread(time.Second) // the SDK tries again when it is refused
			if m.write(&m.present.Writes) {
				l.next = m.now + m.spread(m.TTL/3)
				l.counter++
				l.renewed = m.now
			}
		}
		if m.now >= l.saved {
			l.saved = m.now + m.spread(time.Second)
			if m.write(&m.present.Checkpoints) {
				l.saved = m.now + m.spread(m.Checkpoint)
			}
		}
	}
	for i, f := range m.fellows {
		if f.alive && m.now >= f.scan {
			f.scan = m.now + 2*m.TTL
			m.take(i, f)
		}
		for f.alive && len(f.wants) > 0 && m.grab(f.wants[0], i) {
			f.wants = f.wants[1:]
		}
	}
	if m.now%SampleEvery == SampleEvery/2 {
		m.sample()
	}
}

// take is one round of a worker's lease taker.
func (m *model) take(me int, f *fellow) {
	m.present.Reads += m.pages()
	counts := map[int]int{me: 0}
	var expired []int
	for i := range m.leases {
		l := &m.leases[i]
		if f.since[i] == 0 || f.seen[i] != l.counter {
			f.seen[i], f.since[i] = l.counter, m.now+1
		}
		if l.owner < 0 || m.now-f.since[i] >= m.TTL {
			expired = append(expired, i)
		} else {
			counts[l.owner]++
		}
	}
	target := (m.Shards + len(counts) - 1) / len(counts)
	lacks := target - counts[me]
	if lacks <= 0 {
		return
	}
	if len(expired) > 0 {
		m.rand.Shuffle(len(expired), func(i, j int) { expired[i], expired[j] = expired[j], expired[i] })
		f.wants = expired[:min(lacks, len(expired))]
		return
	}
	most := me
	for w, n := range counts {
		if n > counts[most] || n == counts[most] && w < most {
			most = w
		}
	}
	if counts[most] <= target {
		return
	}
	for i := range m.leases {
		if m.leases[i].owner == most {
			f.wants = []int{i}
			return
		}
	}
}

// spread is d, give or take a tenth.
func (m *model) spread(d time.Duration) time.Duration {
	return d*9/10 + time.Duration(m.rand.Int64N(int64(d/5)))
}

// grab takes a lease if it is as it was when the worker looked. It returns false if it has to be tried again.
func (m *model) grab(i, me int) bool {
	l := &m.leases[i]
	if l.counter != m.fellows[me].seen[i] && l.owner >= 0 {
		return true // renewed or taken since
	}
	if !m.write(&m.present.Writes) {
		return false
	}
	from := l.owner
	if from < 0 {
		from = l.last
	}
	if from >= 0 && from != me {
		m.present.Moves++
	}
	l.owner, l.last, l.counter = me, me, l.counter+1
	l.renewed, l.next = m.now, m.now+m.TTL/3
	if l.saved < m.now {
		l.saved = m.now + time.Duration(m.rand.Int64N(int64(m.Checkpoint)))
	}
	return true
}

func (m *model) sample() {
	counts := map[int]int{}
	x := &m.present
	x.Workers, x.Owned = 0, 0
	for i, f := range m.fellows {
		if f.alive {
			counts[i], x.Workers = 0, x.Workers+1
		}
	}
	for _, l := range m.leases {
		if _, alive := counts[l.owner]; alive {
			counts[l.owner]++
			x.Owned++
		}
	}
	x.At, x.Spread = m.now, apart(counts)
	m.samples = append(m.samples, *x)
	x.Reads, x.Writes, x.Checkpoints, x.Refused = 0, 0, 0, 0
}

// apart is the difference between the largest and the smallest.
func apart[K comparable](counts map[K]int) int {
	low, high := -1, 0
	for _, n := range counts {
		high = max(high, n)
		if low < 0 || n < low {
			low = n
		}
	}
	return high - max(low, 0)
}
