package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudlease/cloudlease/cmd/cloudlease/internal/render"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

func (a *app) historyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "history JOB", Short: "Show the newest runs of a scheduled job, what runs now, and whether it is paused",
		Long: `Show the newest runs of a scheduled job (up to eight), newest first, with one request:

  ran       the command returned 0                 failed    it did not, or was ended
  in-doubt  it was started and has no recorded end: find out what it did, then clear it
  refused   a fence refused a write                lost      the lease ended in mid-run
  cleared, paused, resumed                         what an operator did

A delivery that was skipped (done before, overtaken, paused, or while another occurrence
ran) writes nothing, so that skipping stays one request: an occurrence between two
entries that has none was skipped or never delivered. The deliverer says which.`,
		Example: `  cloudlease history invoices
  cloudlease history invoices -o json | jq '.runs[0].outcome'`,
		Args: named(),
		RunE: func(c *cobra.Command, args []string) error { return failed(a.history(c.Context(), args[0])) },
	}
}

// jobHistory is a history as JSON tells it.
type jobHistory struct {
	Job      string     `json:"job"`
	Running  *jobRun    `json:"running,omitempty"`
	Paused   *jobPause  `json:"paused,omitempty"`
	Started  *string    `json:"started,omitempty"`
	Finished *string    `json:"finished,omitempty"`
	Runs     []jobEntry `json:"runs"`
}

type jobRun struct {
	Occurrence *string     `json:"occurrence,omitempty"`
	Holder     string      `json:"holder"`
	Token      lease.Token `json:"token"`
	Since      *string     `json:"since,omitempty"`
	Expires    *string     `json:"expires,omitempty"`
}

type jobPause struct {
	By    string  `json:"by"`
	Why   string  `json:"why,omitempty"`
	Since *string `json:"since,omitempty"`
}

type jobEntry struct {
	Occurrence *string           `json:"occurrence,omitempty"`
	Outcome    singleton.Outcome `json:"outcome"`
	Token      lease.Token       `json:"token"`
	Started    *string           `json:"started,omitempty"`
	Seconds    float64           `json:"seconds"`
}

// job makes a job of a client of its own. Call leave at the end: some stores have something to give back.
func (a *app) job(ctx context.Context, name string, o *singleton.Options) (j *singleton.Job, leave func(), err error) {
	c, err := a.client(ctx)
	if err != nil {
		return nil, nil, err
	}
	if j, err = singleton.New(c, name, o); err != nil {
		return nil, nil, err
	}
	return j, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leavePatience)
		defer cancel()
		_ = c.Close(ctx)
	}, nil
}

func (a *app) history(ctx context.Context, name string) error {
	j, leave, err := a.job(ctx, name, nil)
	if err != nil {
		return err
	}
	defer leave()
	ctx, done := a.asking(ctx, "asking for "+quoted(name))
	h, err := j.History(ctx)
	done()
	if err != nil {
		return err
	}
	if h.Fault != nil {
		a.say("%v; is %s a job?", h.Fault, quoted(name))
	}
	v := jobHistory{Job: name, Started: render.Stamp(h.Started), Finished: render.Stamp(h.Finished), Runs: []jobEntry{}}
	if r := h.Running; r != nil {
		v.Running = &jobRun{render.Stamp(r.Occurrence), r.Holder, r.Token, render.Stamp(r.Since), render.Stamp(r.Expires)}
	}
	if p := h.Paused; p != nil {
		v.Paused = &jobPause{p.By, p.Why, render.Stamp(p.Since)}
	}
	for _, e := range h.Runs {
		v.Runs = append(v.Runs, jobEntry{render.Stamp(e.Occurrence), e.Outcome, e.Token, render.Stamp(e.Started), e.Took.Seconds()})
	}
	if a.json() {
		return render.JSON(a.out, v)
	}
	return a.showHistory(v, h.Runs)
}

func (a *app) showHistory(v jobHistory, runs []singleton.Entry) error {
	fields := [][2]string{{"job", v.Job}, {"started", or(v.Started)}, {"finished", or(v.Finished)}}
	if r := v.Running; r != nil {
		fields = append(fields, [2]string{"running", fmt.Sprintf("%s since %s, token %d, %s", or(r.Occurrence), or(r.Since), r.Token, r.Holder)})
	}
	if p := v.Paused; p != nil {
		text := fmt.Sprintf("since %s by %s", or(p.Since), p.By)
		if p.Why != "" {
			text += ": " + p.Why
		}
		fields = append(fields, [2]string{"paused", text})
	}
	if err := render.Fields(a.out, fields...); err != nil {
		return err
	}
	rows := make([][]string, 0, len(runs))
	for i, e := range v.Runs {
		took := ""
		if runs[i].Took > 0 {
			took = runs[i].Took.String()
		}
		rows = append(rows, []string{or(e.Occurrence), string(e.Outcome), tokenText(e.Token), or(e.Started), took})
	}
	if _, err := fmt.Fprintln(a.out); err != nil {
		return err
	}
	return render.Table(a.out, []string{"OCCURRENCE", "OUTCOME", "TOKEN", "STARTED", "TOOK"}, rows)
}

func (a *app) clearCommand() *cobra.Command {
	var policy string
	c := &cobra.Command{
		Use: "clear JOB OCCURRENCE", Short: "Let an occurrence of a job run once more when it is delivered again",
		Long: `Forget that an occurrence, and every newer one, was started or finished, so that it runs
once more when it is delivered: one in doubt, one that failed under at-most-once, or a
bogus one of the future that makes all others stale. It leaves an entry in the history.

Give the job's --policy: under at-most-once nothing older than OCCURRENCE may run again.
It fails with code 191 while the job runs.`,
		Example: `  cloudlease clear invoices 2026-03-02T06:00:00Z --policy at-most-once`,
		Args:    named("OCCURRENCE"),
		RunE: func(c *cobra.Command, args []string) error {
			at, err := singleton.ParseOccurrence(args[1])
			if err != nil {
				return failed(err)
			}
			return failed(a.clear(c.Context(), args[0], at, singleton.Policy(policy)))
		},
	}
	c.Flags().StringVar(&policy, "policy", string(singleton.AtLeastOnce), "the job's policy: at-least-once or at-most-once")
	return c
}

func (a *app) clear(ctx context.Context, name string, at time.Time, policy singleton.Policy) error {
	j, leave, err := a.job(ctx, name, &singleton.Options{Policy: policy})
	if err != nil {
		return err
	}
	defer leave()
	ctx, done := a.asking(ctx, "clearing "+quoted(name))
	err = j.Clear(ctx, at)
	done()
	if err != nil {
		return err
	}
	return a.tell(did{Did: "clear", Name: name, Occurrence: render.Stamp(at)},
		fmt.Sprintf("cleared %s at %s: it runs once more when it is delivered", name, at.Format(time.RFC3339)))
}

func (a *app) pauseCommand() *cobra.Command {
	var why string
	c := &cobra.Command{
		Use: "pause JOB", Short: "Let no occurrence of a job run until resume",
		Long: `Let no occurrence of a job run until resume, on any host. A delivery while it is paused
is skipped, and is a success to the platform, so that nothing retries it; the occurrence
is not consumed and runs if it is delivered again after resume. It costs deliveries no
request more: the pause is in the marks that every acquire is conditioned on. A plain
"run JOB" is held off as well.

A run that is under way is not disturbed: the pause begins when it has ended, and the
command waits for that.`,
		Example: `  cloudlease pause invoices --why 'month end is being corrected'
  cloudlease history invoices`,
		Args: named(),
		RunE: func(c *cobra.Command, args []string) error { return failed(a.pause(c.Context(), args[0], why)) },
	}
	c.Flags().StringVar(&why, "why", "", "the reason, shown by history")
	return c
}

func (a *app) pause(ctx context.Context, name, why string) error {
	text := fmt.Sprintf("paused %s: no occurrence runs until cloudlease resume", name)
	return a.turn(ctx, did{Did: "pause", Name: name}, text, func(ctx context.Context, j *singleton.Job) error {
		return j.Pause(ctx, lease.Reason{By: who(a.getenv), Why: why})
	})
}

func (a *app) resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "resume JOB", Short: "End the pause of a job",
		Long: `End the pause of a job. Occurrences that were skipped meanwhile do not run by
themselves: deliver them again if they have to. A job that is not paused is left alone,
with exit code 1.`,
		Example: `  cloudlease resume invoices`,
		Args:    named(),
		RunE: func(c *cobra.Command, args []string) error {
			return failed(a.turn(c.Context(), did{Did: "resume", Name: args[0]}, "resumed "+args[0], func(ctx context.Context, j *singleton.Job) error { return j.Resume(ctx) }))
		},
	}
}

// turn does to a job what waits for the end of its run.
func (a *app) turn(ctx context.Context, v did, text string, do func(context.Context, *singleton.Job) error) error {
	j, leave, err := a.job(ctx, v.Name, nil)
	if err != nil {
		return err
	}
	defer leave()
	ctx, stop := interruptible(ctx)
	defer stop()
	done := a.waitFor(func() string { return "waiting for the end of the run of " + quoted(v.Name) + "; Ctrl-C gives up" })
	err = do(ctx, j)
	done()
	if err != nil {
		return err
	}
	return a.tell(v, text)
}
