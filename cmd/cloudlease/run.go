package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudlease/cloudlease/cmd/cloudlease/internal/child"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// ifHeld says what happens when another has the lock.
type ifHeld string

const (
	heldFail ifHeld = "fail" // after --wait, the code of held
	heldSkip ifHeld = "skip" // after --wait, 0: somebody else does it
	heldWait ifHeld = "wait" // without end, or for --wait
)

// runOptions are what run was asked to do.
type runOptions struct {
	name       string
	argv       []string
	path       string // of the command's file
	ttl        time.Duration
	wait       time.Duration
	ifHeld     ifHeld
	occurrence time.Time // zero: none
	policy     singleton.Policy
	grace      time.Duration
	codes      codes
}

// The times of a run, see runHelp.
const (
	defaultTTL   = 30 * time.Second
	longestGrace = 10 * time.Second
	graceShare   = 4  // the grace is at most a quarter of the TTL, unless told otherwise
	marginShare  = 10 // the lease package's margin is a tenth of the TTL
	leadShare    = 40 // the command is killed this share of the TTL before the wrapper gives the lease up
)

const runHelp = `Run a command while this host holds the lock NAME. The lock is taken, the command is
started in a process group of its own, the lease is renewed while the command runs, and
the lock is given back when the whole group is gone. On Linux every descendant is waited
for, also one that has left the group; elsewhere one that has left it (setsid) is not
followed.

The command gets, beside its environment:

  CLOUDLEASE_TOKEN       the fencing token: send it with every write, and let the storage
                         refuse a lower one
  CLOUDLEASE_NAME        the lock
  CLOUDLEASE_HOLDER      who holds it, as others see it
  CLOUDLEASE_DEADLINE    until when the lease lasted when the command started; it is
                         renewed while the command runs
  CLOUDLEASE_STORE       the store, without credentials
  CLOUDLEASE_OCCURRENCE  with --occurrence

The command ends before the lease can, even if the network hangs and if this process is
stopped or killed. Renewals are tried every third of the TTL. With a TTL of 30 s, and r
the start of the last renewal that passed:

  r        r+10 s              r+18.75 s             r+26.25 s  r+27 s        r+30 s
  |----------|---------------------|---------------------|----------|-------------|---->
  renewed    renewed again, and    SIGTERM to the group  SIGKILL    given up by   another may
             tried until r+27 s                                     this host     get the lock

--grace is the time from SIGTERM to SIGKILL: a quarter of the TTL unless you say
otherwise, at most 10 s, and not more than a third of what is left after a renewal. On
DynamoDB all this comes up to a second earlier, because its clock is known to a second
only. If the store says that the lock is another's, the command is killed at once. Trust
is counted on the monotonic and the wall clock; the one by which more time has passed
counts.

Signals sent to this process (HUP, INT, QUIT, TERM, USR1, USR2, ALRM, WINCH) are passed
on to the group, once. After TERM the group has --grace, then it is killed. A signal
that comes while the lock is waited for ends the wait: the command is not started.
Stdin, stdout, stderr and the terminal are the command's; nothing is read from stdin.

If this process is killed (SIGKILL), its helper kills the command and its descendants at
once; the lock ends by itself after its TTL. What no program can end in time can still
overlap with the next holder: a machine that stood still, a process of another user, one
that was started by a service manager on the command's behalf. For those the storage has
to refuse a lower CLOUDLEASE_TOKEN.

Without --wait and --if-held a held lock is code 191 at once. --if-held skip makes it
code 0, for one of several hosts that are to do the same; --if-held wait waits without
end. With --occurrence the command is a scheduled job, run once for that instant whoever
delivers it: done before, overtaken, paused, or while another occurrence runs, it is
skipped with code 0; while the same occurrence runs elsewhere, --wait and --if-held
apply; see history and clear. --policy at-most-once never starts an occurrence twice.

Exit codes:

`

func (a *app) runCommand() *cobra.Command {
	o := runOptions{}
	var held, at, policy string
	var exit []string
	c := &cobra.Command{
		Use: "run NAME [flags] -- COMMAND [ARG...]", Short: "Run a command while holding a lock; it ends before the lease can",
		Long: runHelp + codesHelp,
		Example: `  cloudlease run backup -- /usr/local/bin/backup --full
  cloudlease run backup --wait 10m -- /usr/local/bin/backup      wait for the present holder
  cloudlease run cleanup --if-held skip -- cleanup.sh            from cron on every host: one does it
  cloudlease run invoices --occurrence 2026-03-02T06:00:00Z -- invoices.sh
  cloudlease run deploy -- sh -c 'curl -H "Fence: $CLOUDLEASE_TOKEN" ...'`,
		DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(c, args, held, at, policy, exit); err != nil {
				return failed(err)
			}
			return a.run(c.Context(), o)
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if a.dashed {
			return err
		}
		return fmt.Errorf("%w; what is the command's goes behind --: cloudlease run NAME -- COMMAND", err)
	})
	f := c.Flags()
	f.DurationVar(&o.ttl, "ttl", defaultTTL, "how long the lease lasts without renewal: on DynamoDB 2s to 1h,\non Azure 15s to 1m, on Consul 10s to 1m")
	f.DurationVar(&o.wait, "wait", 0, "how long to wait for the lock")
	f.StringVar(&held, "if-held", "", "what to do if another has the lock, after --wait: fail, skip or wait")
	f.StringVar(&at, "occurrence", "", "the scheduled `instant` that this run is for, such as 2026-03-02T06:00:00Z")
	f.StringVar(&policy, "policy", "", "with --occurrence: at-least-once (default) or at-most-once")
	f.DurationVar(&o.grace, "grace", 0, "between SIGTERM and SIGKILL (default a quarter of the TTL, at most 10s)")
	f.StringSliceVar(&exit, "exit-code", nil, "other codes than below, such as held=75,lost=76")
	_ = c.RegisterFlagCompletionFunc("if-held", cobra.FixedCompletions([]string{"fail", "skip", "wait"}, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("policy", cobra.FixedCompletions([]string{"at-least-once", "at-most-once"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// complete reads what the flags alone do not tell, and checks all of it before anything is asked for.
func (o *runOptions) complete(c *cobra.Command, args []string, held, at, policy string, exit []string) error {
	dash := c.ArgsLenAtDash()
	switch {
	case dash < 0 && len(args) > 1:
		return usage("write -- before the command: cloudlease run %s -- %s", quoted(args[0]), quoted(args[1]))
	case dash != 1 && len(args) > 0 || len(args) == 0:
		return usage("run takes one NAME before -- and a command behind it")
	case len(args) < 2:
		return usage("there is no command behind --")
	}
	o.name, o.argv = args[0], args[1:]
	if err := lease.CheckName(o.name); err != nil {
		return err
	}
	var err error
	if o.codes, err = parseCodes(exit); err != nil {
		return err
	}
	if err := o.occasion(at, policy); err != nil {
		return err
	}
	switch o.ifHeld = ifHeld(held); {
	case o.ifHeld != "" && o.ifHeld != heldFail && o.ifHeld != heldSkip && o.ifHeld != heldWait:
		return usage("--if-held %q is none of fail, skip and wait", held)
	case o.wait < 0:
		return usage("--wait %v is negative", o.wait)
	case o.ifHeld == "":
		o.ifHeld = heldFail
	}
	if err := o.times(); err != nil {
		return err
	}
	o.path, err = find(o.argv[0])
	return err
}

// occasion reads --occurrence and --policy.
func (o *runOptions) occasion(at, policy string) (err error) {
	o.policy = singleton.Policy(policy)
	switch {
	case at == "" && policy != "":
		return usage("--policy is for --occurrence")
	case policy != "" && o.policy != singleton.AtLeastOnce && o.policy != singleton.AtMostOnce:
		return usage("--policy %q is neither %s nor %s", policy, singleton.AtLeastOnce, singleton.AtMostOnce)
	case at != "":
		o.occurrence, err = singleton.ParseOccurrence(at)
	}
	return err
}

// times checks that the command can be asked and killed between a renewal that failed and the lease's end.
func (o *runOptions) times() error {
	switch {
	case o.ttl <= 0:
		return usage("--ttl %v is not above 0", o.ttl)
	case o.grace < 0:
		return usage("--grace %v is negative", o.grace)
	case o.grace == 0:
		o.grace = min(o.ttl/graceShare, longestGrace)
	case o.grace > o.ttl*2/5:
		return usage("--grace %v does not fit into a TTL of %v after a renewal that failed: use --ttl %v or more", o.grace, o.ttl,
			(o.grace * 5 / 2).Round(time.Second))
	}
	return nil
}

// lead is how long before the lease is given up the command is killed.
func (o *runOptions) lead() time.Duration { return o.ttl / leadShare }

// find looks for the command's file as a shell does, before a lock is taken for nothing.
func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil || errors.Is(err, exec.ErrDot): // a shell would run it as well
		return path, nil
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EISDIR):
		return "", &exitError{code: child.CodeNotExecutable, err: fmt.Errorf("%s is not executable; make it so (chmod +x), or run it by its interpreter", quoted(name))}
	}
	return "", &exitError{code: child.CodeNotFound, err: fmt.Errorf("there is no command %s; check its spelling and PATH", quoted(name))}
}
