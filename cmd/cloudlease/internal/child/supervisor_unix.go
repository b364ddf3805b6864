//go:build unix

package child

import (
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/cloudlease/cloudlease/lease"
)

// watched are the signals that a supervisor must survive and drops: who sends them to all that he finds means the wrapper, and an
// outer supervisor asks this one's command as well. The end of a child wakes it.
var watched = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH,
	syscall.SIGPIPE, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGCONT, syscall.SIGCHLD,
}

// lookEvery is how often the clocks are read: a timer alone sleeps on when the monotonic clock stood still.
const lookEvery = 100 * time.Millisecond

// supervisor is the state of a supervisor process. All of it belongs to the main goroutine.
type supervisor struct {
	news     *json.Encoder
	signals  chan os.Signal
	term     *terminal
	job      bool // the wrapper's parent continues a job that has stopped
	jobGroup int

	group   int // the command's; 0: not started
	ended   bool
	gone    bool
	stopped bool // the whole job, by the terminal

	grace   time.Duration
	trusted limit         // when the command has to be gone
	notice  time.Duration // how long before that it is asked to go
	asked   bool
	dieBy   limit // when the grace of a command that was asked to end is over
	killed  bool
	why     Why
}

// limit is an instant by both clocks.
type limit struct {
	since lease.Reading
	in    time.Duration
}

func (l limit) left(now lease.Reading) time.Duration { return l.in - now.Fast(l.since) }

// Supervise is the whole life of a supervisor process with these arguments. It returns the exit code.
func Supervise(args []string) int {
	// The kernel takes the death of the thread that forked for that of the parent; this one lives as long as the process.
	runtime.LockOSThread()
	pipes := inherited(args)
	if len(pipes) != 2 {
		return 1 // somebody has called it by hand
	}
	orders, up := pipes[0], pipes[1]
	adopt()
	s := &supervisor{news: json.NewEncoder(up), signals: make(chan os.Signal, 64)}
	for _, sig := range watched {
		if !signal.Ignored(sig) { // as nohup does: it stays so for the command
			signal.Notify(s.signals, sig)
		}
	}
	s.loop(receive(orders))
	return 0
}

// inherited are the pipes with the descriptors that args tell, which the command does not get.
func inherited(args []string) (pipes []*os.File) {
	for _, arg := range args {
		fd, err := strconv.Atoi(arg)
		if err != nil || fd < 0 {
			return nil
		}
		f := os.NewFile(uintptr(fd), "pipe")
		if info, err := f.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
			return nil
		}
		syscall.CloseOnExec(fd)
		pipes = append(pipes, f)
	}
	return pipes
}

// receive reads orders until the wrapper is gone, and closes the channel then.
func receive(r *os.File) <-chan order {
	orders := make(chan order)
	go func() {
		defer close(orders)
		for d := json.NewDecoder(r); ; {
			var o order
			if d.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	return orders
}

func (s *supervisor) loop(orders <-chan order) {
	look := time.NewTimer(lookEvery)
	for {
		select {
		case o, alive := <-orders:
			if !alive {
				orders = nil
				s.kill(WrapperUp)
				break
			}
			if !s.obey(o) {
				return
			}
		case <-s.signals:
		case <-look.C:
		}
		s.check()
		s.reap()
		if s.gone || s.group == 0 && orders == nil {
			return
		}
		look.Reset(s.next())
	}
}

// next is the time to the next look.
func (s *supervisor) next() time.Duration {
	next := lookEvery
	if s.group > 0 {
		now := lease.SystemClock()
		next = min(next, s.trusted.left(now))
		if !s.asked {
			next = min(next, s.trusted.left(now)-s.notice)
		} else {
			next = min(next, s.dieBy.left(now))
		}
	}
	if s.ended || s.killed {
		next = min(next, sweepPause)
	}
	return max(next, time.Millisecond)
}

// obey does what the wrapper says. It is false if there is nothing to supervise.
func (s *supervisor) obey(o order) bool {
	switch {
	case o.Start != nil:
		return s.start(*o.Start)
	case o.Trust != nil:
		s.trust(*o.Trust)
	case o.Signal == int(syscall.SIGTERM):
		s.ask(Told)
	case o.Signal > 0:
		s.signal(syscall.Signal(o.Signal))
	case o.Kill:
		s.kill(Ordered)
	case o.Stop && !s.stopped: // else it is what suspended has sent
		s.signal(syscall.SIGTSTP)
	case o.Resume:
		s.resume()
	}
	return true
}

// noticeShare bounds the notice, so that a renewal, which comes when half of the time is left at the latest, can be answered
// before the command is asked to end.
const noticeShare = 3

func (s *supervisor) trust(t trust) {
	now := lease.SystemClock()
	s.trusted = limit{lease.Reading{Mono: now.Mono, Wall: t.At}, t.Left}
	s.notice = min(s.grace, t.Left/noticeShare)
}

// start starts the command in a group of its own.
func (s *supervisor) start(c start) bool {
	s.grace, s.job, s.jobGroup, s.term = c.Grace, c.Job, c.Group, openTerminal(c.Group)
	s.trust(c.Trust)
	pid, err := syscall.ForkExec(c.Path, c.Args, &syscall.ProcAttr{Env: c.Env, Files: []uintptr{0, 1, 2}, Sys: ofItsOwn()})
	if err != nil {
		errno, _ := errors.AsType[syscall.Errno](err)
		s.tell(news{Fault: &fault{int(errno), err.Error()}})
		return false
	}
	s.group = pid
	s.term.lend(pid)
	s.tell(news{Started: pid})
	return true
}

func (s *supervisor) tell(n news) { _ = s.news.Encode(n) } // a wrapper that is gone is found out by the end of its orders

// check asks the command to end, or kills it, when it is time.
func (s *supervisor) check() {
	if s.group == 0 {
		return
	}
	now := lease.SystemClock()
	switch left := s.trusted.left(now); {
	case s.killed:
		s.kill(s.why) // again, for those that were being made meanwhile
	case left <= 0:
		s.kill(TimeIsUp)
	case s.asked && s.dieBy.left(now) <= 0:
		s.kill(s.why)
	case !s.asked && left <= s.notice:
		s.ask(TimeIsUp)
	}
}

// ask asks all processes of the command to end. Those that the terminal has stopped are left so: they do not run on.
func (s *supervisor) ask(why Why) {
	if !s.asked {
		s.asked, s.dieBy = true, limit{lease.SystemClock(), s.grace}
		s.blame(why)
	}
	s.all(syscall.SIGTERM)
	if !s.stopped {
		s.all(syscall.SIGCONT)
	}
}

// kill kills all processes of the command.
func (s *supervisor) kill(why Why) {
	s.killed = true
	s.blame(why)
	s.all(syscall.SIGKILL)
}

// blame keeps the first reason, but for one that says more: who was told to end and was late, ended because it was told.
func (s *supervisor) blame(why Why) {
	if s.why == ByItself {
		s.why = why
	}
}

// signal sends to the command's group.
func (s *supervisor) signal(sig syscall.Signal) {
	if s.group > 0 {
		_ = syscall.Kill(-s.group, sig) // none may be left
	}
}

// all sends to the command's group and to those of its descendants that have left it.
func (s *supervisor) all(sig syscall.Signal) {
	s.signal(sig)
	if s.group == 0 {
		return
	}
	for _, pid := range strays(os.Getpid(), s.group) {
		_ = syscall.Kill(pid, sig)
	}
}

// reap takes the ends and stops of children: the command, and on Linux the orphans among its descendants.
func (s *supervisor) reap() {
	for s.group > 0 {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil || pid == 0:
			s.gone = s.ended && (err != nil || !followsAll) && errors.Is(syscall.Kill(-s.group, 0), syscall.ESRCH)
			if s.gone {
				s.tell(news{Gone: &gone{s.why}})
			}
			return
		case pid != s.group:
		case ws.Stopped():
			s.suspended(ws.StopSignal())
		default:
			s.ended = true
			s.term.reclaim(s.group)
			s.tell(news{Ended: &ended{codeOf(ws)}})
		}
	}
}

// codeOf is a status as a shell tells it.
func codeOf(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return codeSignal + int(ws.Signal())
	}
	return ws.ExitStatus()
}
