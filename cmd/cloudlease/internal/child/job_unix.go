//go:build unix

package child

import (
	"os"
	"os/signal"
	"syscall"
)

// control passes job control on from the wrapper's group to the supervisor, which is not in it, so that who stops the whole job
// (kill -STOP %1) does not stop what ends the command in time. It goes on until Dismiss.
func (s *Supervisor) control(job bool) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGCONT)
	if job { // else the kernel drops it, because nobody would continue this process
		signal.Notify(signals, syscall.SIGTSTP)
	}
	s.jobs.Go(func() {
		defer signal.Stop(signals)
		s.pass(signals)
	})
}

func (s *Supervisor) pass(signals <-chan os.Signal) {
	for stopped := false; ; {
		select {
		case sig := <-signals:
			switch {
			case sig == syscall.SIGCONT:
				stopped = false
				s.send(order{Resume: true})
			case !stopped: // Ctrl-Z while this group has the terminal, or what suspended has sent
				stopped = true
				s.send(order{Stop: true})
				_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // the runtime does not give back what SIGTSTP does by itself
			}
		case <-s.over:
			return
		}
	}
}

// suspended takes the stop of the command's leader.
func (s *supervisor) suspended(by syscall.Signal) {
	if s.term == nil || s.killed {
		return // without a terminal, somebody has stopped it by hand
	}
	if by == syscall.SIGTTIN || by == syscall.SIGTTOU {
		if s.term.give(s.group) { // it wants the terminal, and the job has it
			s.signal(syscall.SIGCONT)
			return
		}
	}
	held := s.term.reclaim(s.group)
	switch {
	case s.job:
		s.stopped = true
		if by != syscall.SIGTTIN {
			by = syscall.SIGTSTP
		}
		_ = syscall.Kill(-s.jobGroup, by) // the wrapper, and what else is in the shell's job
	case by == syscall.SIGTSTP: // nobody would continue it: a terminal does not stop such a job either
		if held {
			s.term.give(s.group)
		}
		s.signal(syscall.SIGCONT)
	}
}

// resume goes on with a job that was stopped, unless the command's time is over.
func (s *supervisor) resume() {
	s.stopped = false
	if s.check(); s.killed || s.group == 0 {
		return
	}
	s.term.lend(s.group)
	s.signal(syscall.SIGCONT)
}
