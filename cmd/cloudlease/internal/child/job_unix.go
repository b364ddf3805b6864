//go:build unix

package child

import (
	"os"
	"os/signal"
	"syscall"
)

// control passes job control on from the wrapper's group to the supervisor, which is not in it, so that who stops the whole job
// (kill -STOP %1) does not stop what ends the command in time. It returns when the command is gone.
func (s *Supervisor) control() {
	stop, resume := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(resume, syscall.SIGCONT)
	defer signal.Stop(resume)
	for {
		if !signal.Ignored(syscall.SIGTSTP) {
			signal.Notify(stop, syscall.SIGTSTP)
		}
		select {
		case <-stop: // Ctrl-Z while this group has the terminal, or what suspended has sent
			s.send(order{Stop: true})
			signal.Reset(syscall.SIGTSTP)
			_ = syscall.Kill(os.Getpid(), syscall.SIGTSTP) // as it would have been without a handler
			select {
			case <-resume:
				s.send(order{Resume: true})
			case <-s.over:
				return
			}
		case <-resume:
			s.send(order{Resume: true})
		case <-s.over:
			signal.Stop(stop)
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
