package scene

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Scene is a scenario.
type Scene struct {
	Name  string
	About string
	// play measures one subject. together: all subjects at once, because the scenario is mostly waiting; otherwise one
	// after the other on each store, and the stores side by side.
	play     func(ctx context.Context, w *World, s Subject) error
	together bool
	only     func(Subject) bool // nil: all
}

// Scenes are all scenarios, in the order of the tables.
func Scenes() []Scene {
	all := []Scene{
		{Name: "uncontended", About: "acquire and release of a free lock", play: uncontended},
		{Name: "renew", About: "one renewal, as a heartbeat sends it", play: renew},
		{Name: "failfast", About: "one attempt on a lock that another holds", play: failFast},
		{Name: "singleton", About: "a scheduled occurrence that is delivered five times", play: deliveries},
		{Name: "takeover", About: "the holder was killed", play: takeOver, together: true},
	}
	for _, n := range []int{2, 20, 100} {
		all = append(all, Scene{
			Name: fmt.Sprintf("contend-%d", n), About: fmt.Sprintf("%d contenders that hold the lock for 100 ms each", n),
			play: func(ctx context.Context, w *World, s Subject) error { return contend(ctx, w, s, n) }, only: Subject.waits,
		})
	}
	return append(all,
		Scene{Name: "held", About: "10, 100 and 1,000 locks held by one process", play: heldLocks, only: Subject.renews},
		Scene{Name: "shards", About: "10, 100, 1,000 and 10,000 shards, four workers", play: shards, only: Subject.shards},
		Scene{Name: "coldstart", About: "a Lambda function from its start to its first lock", play: coldStart, only: Subject.lambda},
	)
}

// waits: ShedLock waits for nobody.
func (s Subject) waits() bool { return s.Name != "shedlock" }

// renews: ShedLock's provider for DynamoDB extends no lock.
func (s Subject) renews() bool { return s.Name != "shedlock" }

// sceneTimeout bounds one subject in one scenario.
const sceneTimeout = 4 * time.Minute

// Play plays a scenario with all subjects that it has a part for. A subject that fails does not stop the others.
func (w *World) Play(ctx context.Context, sc Scene) error {
	lanes := map[string][]Subject{}
	for _, s := range w.subjects {
		if sc.only != nil && !sc.only(s) {
			continue
		}
		lane := s.Store
		if sc.together {
			lane = s.Name
		}
		lanes[lane] = append(lanes[lane], s)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, lane := range lanes {
		wg.Go(func() {
			for _, s := range lane {
				if err := w.one(ctx, sc, s); err != nil {
					mu.Lock()
					errs = append(errs, fmt.Errorf("%s: %s: %w", sc.Name, s.Name, err))
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (w *World) one(ctx context.Context, sc Scene, s Subject) error {
	ctx, cancel := context.WithTimeout(ctx, sceneTimeout)
	defer cancel()
	began := time.Now()
	err := sc.play(ctx, w, s)
	if errors.Is(err, errUnsupported) {
		w.say("%-12s %-20s has no such thing", sc.Name, s.Name)
		return nil
	}
	w.say("%-12s %-20s %5.1f s", sc.Name, s.Name, time.Since(began).Seconds())
	return err
}

// Warm lets the engines answer for a while before anything is measured on them: the first subject would pay for their start.
func (w *World) Warm(ctx context.Context) error {
	cold := NewWorld(w.dir, nil, func(string, ...any) {})
	cold.engines = w.engines
	cold.subjects = slices.DeleteFunc(Subjects(), func(s Subject) bool {
		return s.Kind != Floor || !slices.ContainsFunc(w.subjects, func(x Subject) bool { return x.Store == s.Store })
	})
	err := cold.Play(ctx, Scene{Name: "warm-up", play: uncontended})
	w.made += cold.made
	return err
}

// Choose picks subjects by their names; no names: all. Unknown names are an error.
func Choose(names []string) ([]Subject, error) {
	all := Subjects()
	if len(names) == 0 {
		return all, nil
	}
	for _, n := range names {
		if !slices.ContainsFunc(all, func(s Subject) bool { return s.Name == n }) {
			return nil, fmt.Errorf("there is no subject %q", n)
		}
	}
	return slices.DeleteFunc(all, func(s Subject) bool { return !slices.Contains(names, s.Name) }), nil
}
