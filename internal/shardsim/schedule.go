package shardsim

import "time"

// Schedule is what happens to a fleet.
type Schedule struct {
	Shards     int
	Workers    int           // at the start
	TTL        time.Duration // the interval is a third of it
	Capacity   int           // writes a second that the table takes
	Throttled  int           // the same in the phase "throttled"
	Checkpoint time.Duration // between two of one shard
	Phases     []Phase
}

// Phase is a part of a schedule. What it does, it does at its beginning.
type Phase struct {
	Name     string
	Length   time.Duration
	Join     int           // workers that start
	Crash    int           // workers that die, as far apart as can be in the order of their joins
	Restart  bool          // every worker is stopped and another one started, one after the other
	Every    time.Duration // between two joins or restarts; 0: all at once
	Throttle bool
}

// Full is the schedule of the documentation, Small one for a quick test.
func Full() Schedule {
	return schedule(10_000, 150, 50, 20, 2*time.Second)
}

// Small is Full with few shards and workers.
func Small() Schedule {
	s := schedule(300, 12, 4, 3, 10*time.Second)
	s.Capacity, s.Throttled = 60, 12
	return s
}

func schedule(shards, workers, join, crash int, every time.Duration) Schedule {
	all := workers + join
	return Schedule{
		Shards: shards, Workers: workers, TTL: 30 * time.Second, Capacity: 2000, Throttled: 400, Checkpoint: time.Minute,
		Phases: []Phase{
			{Name: "start", Length: 4 * time.Minute},
			{Name: "settled", Length: 3 * time.Minute},
			{Name: "joins", Length: 4 * time.Minute, Join: join, Every: time.Minute / time.Duration(join)},
			{Name: "crashes", Length: 4 * time.Minute, Crash: crash},
			{Name: "refill", Length: 3 * time.Minute, Join: crash},
			{Name: "rolling restart", Length: time.Duration(all)*every + 3*time.Minute, Restart: true, Every: every},
			{Name: "throttled", Length: 4 * time.Minute, Throttle: true},
			{Name: "relieved", Length: 4 * time.Minute},
		},
	}
}

// Length is how long the schedule takes.
func (s Schedule) Length() (d time.Duration) {
	for _, p := range s.Phases {
		d += p.Length
	}
	return d
}

// pages is how many requests a scan takes: 1 MB each, of records of about 250 bytes.
func (s Schedule) pages() int { return s.Shards*250/1_000_000 + 1 }

// Sample is a look at the fleet. Requests are those since the last look.
type Sample struct {
	At          time.Duration
	Workers     int
	Owned       int // shards that are worked on
	Spread      int // between the workers with most and fewest shards
	Moves       int // shards that were begun by another worker than before, since the start
	Lost        int // shards that a living worker lost, since the start
	Reads       int
	Writes      int // without checkpoints
	Checkpoints int
	Refused     int
}

// SampleEvery is the time between two samples, the first of which is taken after half of it.
const SampleEvery = 5 * time.Second

// Result is a phase as the samples show it.
type Result struct {
	Phase       string
	Converged   time.Duration // until all shards were owned and even for good; negative: not within the phase
	Moves, Lost int
	Reads       float64 // a second
	Writes      float64
	Checkpoints float64
	Spread      int // at the end
	Owned       int // at the end
}

// Results sums samples up by phase. A fleet that restarts or is throttled converges after the last of it.
func (s Schedule) Results(samples []Sample) []Result {
	var out []Result
	var begin time.Duration
	var before Sample
	for _, p := range s.Phases {
		r := Result{Phase: p.Name, Converged: -1}
		var last Sample
		n := 0
		for _, x := range samples {
			if x.At <= begin || x.At > begin+p.Length {
				continue
			}
			n++
			r.Reads, r.Writes, r.Checkpoints = r.Reads+float64(x.Reads), r.Writes+float64(x.Writes), r.Checkpoints+float64(x.Checkpoints)
			switch even := x.Owned == s.Shards && x.Spread <= 1; {
			case !even:
				r.Converged = -1
			case r.Converged < 0:
				r.Converged = x.At - begin
			}
			last = x
		}
		seconds := float64(n) * SampleEvery.Seconds()
		r.Reads, r.Writes, r.Checkpoints = r.Reads/seconds, r.Writes/seconds, r.Checkpoints/seconds
		r.Moves, r.Lost, r.Spread, r.Owned = last.Moves-before.Moves, last.Lost-before.Lost, last.Spread, last.Owned
		out = append(out, r)
		before, begin = last, begin+p.Length
	}
	return out
}
