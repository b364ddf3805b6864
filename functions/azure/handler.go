package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/cloudlease/cloudlease/functions/bloblease/blobjob"
	"github.com/cloudlease/cloudlease/functions/internal/environ"
	"github.com/cloudlease/cloudlease/functions/internal/settlement"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// handler speaks the protocol of the Functions host: a POST per invocation, answered when the run has ended.
type handler struct {
	client *lease.Client
	job    *singleton.Job
	body   func(context.Context) (settlement.Report, error)
	left   time.Duration // of an invocation's limit, after the reserve
	zone   string
}

// function is the name of the function, and of its folder.
const function = "settlement"

// maxBody is the largest invocation that is read. A timer's has a few hundred bytes.
const maxBody = 256 << 10

// newHandler puts the function together from its environment. It makes no request.
func newHandler(getenv func(string) string) (*handler, error) {
	cfg, err := blobjob.Configure(getenv)
	r := environ.New(getenv)
	limit, zone := limitOf(r), zoneOf(r)
	if err := errors.Join(err, r.Err()); err != nil {
		return nil, err
	}
	client, body, err := cfg.Open()
	if err != nil {
		return nil, err
	}
	left := limit - reserveOf(limit)
	o := cfg.Singleton()
	o.Wait = left / 2 // a delivery that takes over a dead run still has time to run itself
	job, err := singleton.New(client, cfg.Job, &o)
	if err != nil {
		return nil, err
	}
	return &handler{client: client, job: job, body: body.Handle, left: left, zone: zone}, nil
}

// routes are the function, and the root, by which the host asks whether anybody is there.
func (h *handler) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /"+function, h.invoke)
	mux.HandleFunc("GET /{$}", func(http.ResponseWriter, *http.Request) {})
	return mux
}

// delivery is what came of an invocation.
type delivery struct {
	singleton.Result
	report settlement.Report
	status int
	err    error
}

func (h *handler) invoke(w http.ResponseWriter, r *http.Request) {
	d := delivery{Result: singleton.Result{Job: h.job.Name(), Outcome: singleton.NotRun}, status: http.StatusBadRequest}
	var body []byte
	if body, d.err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody)); d.err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](d.err); large {
			d.status = http.StatusRequestEntityTooLarge
		}
	} else {
		var at time.Time
		if at, d.err = occurrence(body, h.zone); d.err == nil {
			d = h.run(r.Context(), at)
		}
	}
	d.log(r)
	d.answer(w)
}

var errOutOfTime = fmt.Errorf("the host's functionTimeout is near: %w", context.DeadlineExceeded)

// run runs the job for an occurrence within what the invocation has left.
func (h *handler) run(ctx context.Context, at time.Time) (d delivery) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.left, errOutOfTime)
	defer cancel()
	d.Result, d.err = h.job.Run(ctx, at, func(ctx context.Context, _ *lease.Lease) (err error) {
		d.report, err = h.body(ctx)
		return err
	})
	d.status = statusOf(d.Outcome, d.err)
	return d
}

// statusOf is the answer's status; the package's documentation has the table.
func statusOf(outcome singleton.Outcome, err error) int {
	if err == nil {
		return http.StatusOK
	}
	switch outcome {
	case singleton.Running, singleton.Busy:
		return http.StatusConflict
	case singleton.InDoubt, singleton.FailedBefore:
		return http.StatusPreconditionFailed
	case singleton.NotRun:
		if errors.Is(err, lease.ErrInvalid) {
			return http.StatusBadRequest
		}
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// log tells the reason, which the host does not pass on from the answer of a failure.
func (d delivery) log(r *http.Request) {
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("job", d.Job), slog.String("outcome", string(d.Outcome)), slog.Int("status", d.status),
		slog.String("invocation", r.Header.Get("X-Azure-Functions-InvocationId")),
	}
	if !d.Occurrence.IsZero() {
		attrs = append(attrs, slog.String("occurrence", d.Occurrence.Format(time.RFC3339)))
	}
	if d.Token != 0 {
		attrs = append(attrs, slog.Uint64("token", uint64(d.Token)), slog.String("holder", d.Holder))
	}
	if d.Waited != 0 {
		attrs = append(attrs, slog.Duration("waited", d.Waited))
	}
	if d.Release != nil {
		level = slog.LevelWarn
		attrs = append(attrs, slog.String("not recorded", d.Release.Error()))
	}
	if d.err != nil {
		level = slog.LevelError
		if d.Outcome == singleton.Running {
			level = slog.LevelWarn
		}
		attrs = append(attrs, slog.String("err", d.err.Error()))
	}
	slog.LogAttrs(r.Context(), level, "singleton delivery", attrs...)
}

// answer writes what the host takes. Its outputs are never empty, because the host warns of that.
func (d delivery) answer(w http.ResponseWriter) {
	out := struct {
		Outputs     map[string]any
		Logs        []string
		ReturnValue any
	}{map[string]any{"outcome": d.Outcome}, []string{fmt.Sprintf("%s: the job %q, %s", d.Outcome, d.Job, d.instant())}, d.Outcome}
	if d.Outcome == singleton.Ran {
		out.ReturnValue = d.report
	}
	if d.err != nil {
		out.Logs = append(out.Logs, d.err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(d.status)
	_ = json.NewEncoder(w).Encode(out) // a host that has gone away needs no answer
}

func (d delivery) instant() string {
	if d.Occurrence.IsZero() {
		return "no occurrence"
	}
	return fmt.Sprintf("occurrence %s, token %d", d.Occurrence.Format(time.RFC3339), d.Token)
}
