//go:build unix

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// beat is a pause between what the reader, and the picture, should tell apart. Nothing depends on it.
const beat = 700 * time.Millisecond

// play shows the three scenes.
func (w *world) play(ctx context.Context) error {
	w.began = time.Now()
	for _, scene := range []func(context.Context, string) error{w.fiveAtOnce, w.killed, w.stopped} {
		if err := scene(ctx, occurrences[len(w.scenes)]); err != nil {
			return err
		}
		if err := rest(ctx, beat); err != nil {
			return err
		}
		w.scenes = append(w.scenes, time.Now())
	}
	return nil
}

// fiveAtOnce delivers one occurrence to all processes at once, and once more when it is done.
func (w *world) fiveAtOnce(ctx context.Context, day string) error {
	w.say("\na. Five at once. A scheduler promises to deliver a run at least once, not just once. The run of")
	w.say("   %s reaches five processes at the same instant. Only one may do it.", day)
	var all []*delivery
	for _, p := range w.procs {
		all = append(all, w.deliver(ctx, p, day))
	}
	if err := w.introduce(ctx); err != nil {
		return err
	}
	first, err := w.granted(ctx, day, 1)
	if err != nil {
		return err
	}
	w.now("%s gets the lease, and with it token %s, a number that grows with every lease.", first.name, first.Token)
	var idle []string
	for _, d := range all {
		outcome, err := d.want(ctx, "ran", "already-done")
		if err != nil {
			return err
		}
		if outcome == "already-done" {
			idle = append(idle, d.to.name)
		}
	}
	w.now("%s has done the run. %s have waited for its end and find nothing left to do.", first.name, strings.Join(idle, ", "))
	if err := rest(ctx, beat); err != nil {
		return err
	}
	again := w.deliver(ctx, w.other(first.process), day)
	if _, err := again.want(ctx, "already-done"); err != nil {
		return err
	}
	w.now("The run is delivered once more, to %s: already done, answered in %d ms.", again.to.name, again.until.Sub(again.from).Milliseconds())
	return nil
}

// introduce names the processes, which the first delivery starts.
func (w *world) introduce(ctx context.Context) error {
	var names []string
	for _, p := range w.procs {
		if err := w.until(ctx, func() bool { p.pid = p.env.Pid(); return p.pid != 0 }); err != nil {
			return fmt.Errorf("wait for process %s to start: %w", p.name, err)
		}
		names = append(names, fmt.Sprintf("%s (pid %d)", p.name, p.pid))
	}
	w.now("%s start.", strings.Join(names, ", "))
	return nil
}

// killed kills a process in mid-run. The next delivery takes over.
func (w *world) killed(ctx context.Context, day string) error {
	victim, heir := w.procs[1], w.procs[2]
	w.say("\nb. Killed in mid-run. A dead process gives nothing back: its lease ends by itself, %.0f s after it", leaseTTL.Seconds())
	w.say("   was last renewed. The run must not be lost: it is delivered again, and another takes over.")
	read := victim.count("settlement reading")
	lost := w.deliver(ctx, victim, day)
	before, err := w.granted(ctx, day, 1)
	if err != nil {
		return err
	}
	w.now("%s gets the lease, with token %s, and begins.", victim.name, before.Token)
	const some = paymentsPerDay - 1
	if err := w.until(ctx, func() bool { return victim.count("settlement reading") >= read+some }); err != nil {
		return fmt.Errorf("wait for process %s to read payments: %w", victim.name, err)
	}
	if err := victim.env.Kill(); err != nil {
		return err
	}
	dead := w.did(Killed, victim)
	w.now("%s has read %d of %d payments and is killed (SIGKILL).", victim.name, some, paymentsPerDay)
	w.now("The run is delivered again, to %s, which finds the lease taken and waits.", heir.name)
	taking := w.deliver(ctx, heir, day)
	after, err := w.granted(ctx, day, 2)
	if err != nil {
		return err
	}
	took := after.From.Sub(dead)
	w.now("%s takes over %.1f s after the kill, with the higher token %s.", heir.name, took.Seconds(), after.Token)
	if most := leaseTTL + 3*time.Second; took > most {
		return fmt.Errorf("%w: taking over took %v, more than %v", errSpoiled, took, most)
	}
	if _, err := taking.want(ctx, "ran"); err != nil {
		return err
	}
	w.now("%s has done the run. Its result is written once.", heir.name)
	<-lost.done
	return lost.err
}

// stopped stops a process right before its write, for longer than its lease lasts, and wakes it when another has taken over.
func (w *world) stopped(ctx context.Context, day string) error {
	sleeper, heir := w.procs[3], w.procs[4]
	w.say("\nc. Stopped past its lease. A process can be frozen at any moment, for any time, and not notice: it")
	w.say("   goes on with what it was about to do. No lock can prevent that. The storage it writes to can.")
	came := sleeper.count("settlement writing")
	late := w.deliver(ctx, sleeper, day)
	if err := w.until(ctx, func() bool { return sleeper.count("settlement writing") > came }); err != nil {
		return fmt.Errorf("wait for process %s to come to its write: %w", sleeper.name, err)
	}
	if err := sleeper.env.Pause(); err != nil {
		return err
	}
	w.did(Stopped, sleeper)
	before, err := w.granted(ctx, day, 1)
	if err != nil {
		return err
	}
	if w.wrote(before.Token) {
		return fmt.Errorf("%w: process %s had written before it could be stopped; this machine is too busy, try again", errSpoiled, sleeper.name)
	}
	w.now("%s, with token %s, is stopped (SIGSTOP) just before it writes its result.", sleeper.name, before.Token)
	w.now("The run is delivered again, to %s, which finds the lease taken and waits.", heir.name)
	taking := w.deliver(ctx, heir, day)
	after, err := w.granted(ctx, day, 2)
	if err != nil {
		return err
	}
	w.now("%s takes over with the higher token %s.", heir.name, after.Token)
	if _, err := taking.want(ctx, "ran"); err != nil {
		return err
	}
	w.now("%s has done the run and written its result.", heir.name)
	if err := rest(ctx, beat); err != nil {
		return err
	}
	w.did(Woken, sleeper)
	if err := sleeper.env.Resume(); err != nil {
		return err
	}
	w.now("%s wakes (SIGCONT) and writes its result, too.", sleeper.name)
	return w.lateWrite(ctx, late, before, after)
}

// lateWrite tells what became of the sleeper's write.
func (w *world) lateWrite(ctx context.Context, late *delivery, before, after grant) error {
	if !w.fence {
		if _, err := late.want(ctx, "lost"); err != nil {
			return err
		}
		w.now("Nothing stops it: the fence is off, the write gets through.")
		return nil
	}
	if _, err := late.want(ctx, "refused"); err != nil {
		return err
	}
	w.now("The store refuses it: token %s is older than %s, which it has seen.", before.Token, after.Token)
	return nil
}

// wrote tells whether the run with a token has sent its result.
func (w *world) wrote(token string) bool {
	return slices.ContainsFunc(w.recorder.Writes(), func(wr Write) bool { return reportOf(wr.Value).Token.String() == token })
}

// did records an act.
func (w *world) did(kind MarkKind, to *process) time.Time {
	at := time.Now()
	w.acts = append(w.acts, act{at: at, kind: kind, to: to})
	return at
}

// other is a process that is not p.
func (w *world) other(p *process) *process {
	if p == w.procs[0] {
		return w.procs[1]
	}
	return w.procs[0]
}

// grant is a lease and the process that has it.
type grant struct {
	Hold
	*process
}

// granted waits until the store has granted the nth lease of a day.
func (w *world) granted(ctx context.Context, day string, nth int) (grant, error) {
	var found Hold
	err := w.until(ctx, func() bool {
		n := 0
		for _, h := range Holds(w.recorder.Writes(), locksTable) {
			if h.Day == day {
				n++
			}
			if n == nth {
				found = h
				return true
			}
		}
		return false
	})
	if err != nil {
		return grant{}, fmt.Errorf("wait for lease %d of %s: %w", nth, day, err)
	}
	owner := w.owner(found.Holder)
	if owner == nil {
		return grant{}, fmt.Errorf("%w: %q, who got a lease, is none of the five processes", errSpoiled, found.Holder)
	}
	return grant{found, owner}, nil
}

// owner is the process of a holder, whose name has the process id in it: host:pid:instance.
func (w *world) owner(holder string) *process {
	parts := strings.Split(holder, ":")
	for _, p := range w.procs {
		if len(parts) == 3 && parts[1] == strconv.Itoa(p.pid) {
			return p
		}
	}
	return nil
}

// until waits until something is true of what was recorded. It gives up when nobody is at work any more.
func (w *world) until(ctx context.Context, is func() bool) error {
	for {
		idle := w.idle()
		if is() {
			return nil
		}
		if idle != nil {
			return idle
		}
		if err := rest(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// idle is nil while a delivery is under way, then how the last one ended.
func (w *world) idle() error {
	for _, d := range w.deliveries {
		select {
		case <-d.done:
		default:
			return nil
		}
	}
	last := w.deliveries[len(w.deliveries)-1]
	return fmt.Errorf("%w: nothing runs any more; process %s answered the delivery of %s with %s%s", errSpoiled, last.to.name, last.day,
		last.result.Body, last.result.ErrorBody)
}

// rest waits for d, unless ctx ends.
func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
