// Package child runs a command so that it ends before a lease can.
//
// # Not promised
//
// A process that the kernel does not end (in an uninterruptible call, or of another user after setuid) is waited for, and
// the lease stays held until it ends by itself. Outside of Linux a process that leaves the command's process group
// (setsid) is not followed. A process that is not a descendant of the command, such as one that the command asked a
// service manager or a container engine to start, is never seen. Signals that the caller ignores stay ignored
// for the command if they are SIGHUP (nohup) and SIGINT; Go's runtime does not tell of others.
//
// # Three processes
//
//	wrapper      holds the lease, renews it, is the one that others know and send signals to
//	   | pipes   orders down, news up; their end tells either side that the other has died
//	supervisor   the same binary once more: parent and reaper of the command, in a process group of its own
//	   | fork
//	command      leader of a process group of its own, with the wrapper's stdin, stdout, stderr and terminal
//
// The supervisor is told, with every renewal, how long the command may still run, and counts that down by itself on both
// clocks. So the command ends in time while the wrapper hangs in a network call, is stopped or is killed:
//
//	wrapper killed              supervisor sees the end of its pipe and kills the command and all its descendants
//	wrapper or its job stopped  supervisor asks and kills at the instants it knows; the wrapper finds the loss when it wakes
//	supervisor stopped          the wrapper kills the group when the lease is lost, and lets the supervisor go on
//	both stopped at once        nobody ends the command in time; as with a machine that stands still, a fence has to refuse it
//	supervisor killed           the kernel kills the command (Linux); the wrapper kills what is left of the group and the rest
//	both killed at once         the kernel kills the command itself (Linux); its children have the token and the deadline
//	command's leader ends       the rest of its group, and on Linux every descendant, is waited for
//	command does not start      told with the code of the shell: 127 not found, 126 not executable
//
// # Signals
//
// The wrapper passes on what it gets, once, to the whole group. What the supervisor gets itself it drops: it is in no group
// that others send signals to, so that stopping or killing the wrapper's group (the shell's job) leaves it at work. After SIGTERM the command has a grace, then it is killed. Other signals have no such consequence, because
// many programs go on after them.
//
// # Terminal
//
// If stdin and stdout are the terminal, and the wrapper is in its foreground, the command's group is put there: keys and
// their signals reach the command alone. In a pipeline the rest of the shell's job stays in the foreground, and the command
// gets the terminal when it first reads from it. When the command is stopped (Ctrl-Z), the terminal is taken back and the
// wrapper's job stops with it, so that the shell goes on; when the job is continued, a command whose time is over is killed
// before it runs on. The terminal's modes are put back at the end.
package child
