package lambdalease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/singleton"
)

// Options are a handler's options. The zero value of every field is its documented default; a nil *Options is all defaults.
type Options struct {
	// Singleton are the job's options. Wait has another default here: half of the time that an invocation has, so that
	// a delivery that takes over a dead run still has time to run itself. Negative: no waiting.
	Singleton singleton.Options

	// Reserve is how long before the invocation's deadline the handler's context ends. Default 1 s, at least 200 ms.
	Reserve time.Duration

	// Occurrence reads the scheduled instant from an event. Default: the package's Occurrence.
	Occurrence func(event []byte) (time.Time, error)

	// Metrics is where a line of CloudWatch embedded metrics goes for every invocation. Default os.Stdout, which Lambda
	// sends to CloudWatch; io.Discard for none.
	Metrics io.Writer

	// Namespace is the metrics' namespace. Default "cloudlease".
	Namespace string

	// Logger is told how every delivery ended. Default slog.Default.
	Logger *slog.Logger
}

const minReserve = 200 * time.Millisecond

// Handler is a function that runs once per occurrence. It implements lambda.Handler and is safe for concurrent use.
type Handler struct {
	c       *lease.Client
	job     string
	handler any
	skipped []byte // the answer to a delivery that was skipped
	opt     Options
	writing sync.Mutex // one line of metrics at a time
}

// New makes a handler of any function that lambda.Start takes, or of a lambda.Handler. job names the lock. nil options are all
// defaults. It makes no request, and reports every fault at once.
func New(c *lease.Client, job string, handler any, o *Options) (*Handler, error) {
	if o == nil {
		o = &Options{}
	}
	h := &Handler{c: c, job: job, handler: handler, opt: o.withDefaults()}
	errs := []error{checkHandler(handler), h.opt.check(job)}
	if _, err := singleton.New(c, job, h.singletonOptions(0)); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	h.skipped = zeroResult(handler)
	return h, nil
}

// Wrap is New with default options, for lambda.Start. A handler or an argument that New refuses gives a handler whose every
// invocation fails with New's error.
func Wrap(c *lease.Client, job string, handler any) lambda.Handler {
	h, err := New(c, job, handler, nil)
	if err != nil {
		return refusal{err}
	}
	return h
}

type refusal struct{ err error }

func (r refusal) Invoke(context.Context, []byte) ([]byte, error) { return nil, r.err }

func (o Options) withDefaults() Options {
	if o.Reserve == 0 {
		o.Reserve = time.Second
	}
	if o.Occurrence == nil {
		o.Occurrence = Occurrence
	}
	if o.Metrics == nil {
		o.Metrics = os.Stdout
	}
	if o.Namespace == "" {
		o.Namespace = "cloudlease"
	}
	return o
}

func (o Options) check(job string) error {
	var errs []error
	if o.Reserve < minReserve {
		errs = append(errs, lease.Invalid("configure", job,
			"reserve %v is below %v: the release could not be answered before the deadline", o.Reserve, minReserve))
	}
	if !isNamespace(o.Namespace) {
		errs = append(errs, lease.Invalid("configure", job, "%.40q is not a namespace of CloudWatch", o.Namespace))
	}
	return errors.Join(errs...)
}

// checkHandler finds at once what aws-lambda-go would report at every invocation.
func checkHandler(handler any) error {
	if _, ok := handler.(lambda.Handler); ok {
		return nil
	}
	fault := func(format string, args ...any) error {
		return lease.Invalid("configure", "", "the handler %T: "+format, append([]any{handler}, args...)...)
	}
	t := reflect.TypeOf(handler)
	if t == nil || t.Kind() != reflect.Func || reflect.ValueOf(handler).IsNil() {
		return fault("it is neither a function nor a lambda.Handler")
	}
	if t.IsVariadic() || t.NumIn() > 2 || t.NumIn() == 2 && !isContext(t.In(0)) ||
		t.NumIn() == 1 && t.In(0).Kind() == reflect.Interface && t.In(0).NumMethod() > 0 && !isContext(t.In(0)) {
		return fault("it takes something else than a context.Context and an event, in this order")
	}
	if n := t.NumOut(); n > 2 || n > 0 && !t.Out(n-1).Implements(reflect.TypeFor[error]()) {
		return fault("it returns something else than a result and an error, in this order")
	}
	return nil
}

func isContext(t reflect.Type) bool {
	ctx := reflect.TypeFor[context.Context]()
	return t.Kind() == reflect.Interface && ctx.Implements(t) && t.Implements(ctx)
}

// zeroResult is what handler answers when it has nothing to say: the zero value of its result as JSON.
func zeroResult(handler any) []byte {
	null := []byte("null")
	if t := reflect.TypeOf(handler); t.Kind() == reflect.Func && t.NumOut() == 2 {
		if b, err := json.Marshal(reflect.Zero(t.Out(0)).Interface()); err == nil {
			return b
		}
	}
	return null
}

// Invoke implements lambda.Handler: it calls the handler for the event's occurrence, or says why not. It blocks until the
// handler has returned and the lock is released. The handler's own error is returned unchanged.
func (h *Handler) Invoke(ctx context.Context, event []byte) ([]byte, error) {
	res := singleton.Result{Job: h.job, Outcome: singleton.NotRun}
	at, err := h.opt.Occurrence(event)
	if err != nil {
		h.report(ctx, res, err)
		return nil, err
	}
	res.Occurrence, res.Outcome, err = at, singleton.Failed, errPanicked // unless it gets to say otherwise
	defer func() { h.report(ctx, res, err) }()
	var out []byte
	res, err = h.run(ctx, at, func(ctx context.Context, _ *lease.Lease) (err error) {
		// A wrapper of its own for every call: its results are views of buffers that it hands on to the next call.
		out, err = lambda.NewHandler(h.handler).Invoke(ctx, event)
		return err
	})
	h.settle(ctx)
	switch {
	case err != nil:
		return nil, err
	case res.Outcome != singleton.Ran:
		return h.skipped, nil
	}
	return out, nil
}

// settle waits a moment for what was given back in the background: a frozen process would finish it at its next invocation,
// when another may hold the lock.
func (h *Handler) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, minReserve)
	defer cancel()
	_ = h.c.Settle(ctx) // what is not done by then ends by itself
}

var errPanicked = errors.New("the handler panicked")

// run runs the job within what the invocation has left, less the reserve, and until SIGTERM.
func (h *Handler) run(ctx context.Context, at time.Time, body singleton.Body) (singleton.Result, error) {
	none := singleton.Result{Job: h.job, Occurrence: at, Outcome: singleton.NotRun}
	var left time.Duration
	if deadline, ok := ctx.Deadline(); ok {
		away := deadline.Sub(h.c.Clock()().Wall)
		if left = away - h.opt.Reserve; left <= 0 {
			return none, lease.Invalid("run", h.job, "%v before the deadline nothing is left after the reserve of %v; "+
				"raise the function's time-out or lower the reserve", away.Round(time.Millisecond), h.opt.Reserve)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, deadline.Add(-h.opt.Reserve), h.outOfTime())
		defer cancel()
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	job, err := singleton.New(h.c, h.job, h.singletonOptions(left))
	if err != nil {
		return none, err
	}
	return job.Run(ctx, at, body)
}

// outOfTime is the cause that a handler sees when its time is over.
func (h *Handler) outOfTime() error {
	return fmt.Errorf("the invocation's deadline is %v away: %w", h.opt.Reserve, context.DeadlineExceeded)
}

// singletonOptions are the job's options in an invocation that has left.
func (h *Handler) singletonOptions(left time.Duration) *singleton.Options {
	o := h.opt.Singleton
	switch {
	case o.Wait == 0:
		o.Wait = left / 2
	case o.Wait < 0:
		o.Wait = 0
	}
	return &o
}
