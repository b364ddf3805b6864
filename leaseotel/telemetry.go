package leaseotel

import (
	"errors"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/cloudlease/cloudlease/lease"
)

// Scope is the name of the instrumentation scope.
const Scope = "github.com/cloudlease/cloudlease/leaseotel"

// Options say where telemetry goes. The zero value of every field is its documented default; a nil *Options is all defaults.
type Options struct {
	// MeterProvider makes the instruments. Default otel.GetMeterProvider.
	MeterProvider metric.MeterProvider
	// TracerProvider makes the spans. Default otel.GetTracerProvider.
	TracerProvider trace.TracerProvider
	// Lock gives the value of cloudlease.lock.name in metrics for a lock; an empty one leaves it out. Each value is a series
	// of its own in every metric: map names that are many to one, such as "order/4711" to "order". It is called often and from
	// several goroutines. Default: no metric has the attribute.
	Lock func(name string) string
	// Next is told every event as well. Give it lease.LogObserver(nil) to keep the log. Default: nobody.
	Next lease.Observer
}

// Telemetry is a lease.Observer that measures, and makes wrappers that trace. It is safe for concurrent use and for any
// number of clients. It holds nothing that needs an end; flush the providers before the process ends.
type Telemetry struct {
	opt    Options
	tracer trace.Tracer
	inst   instruments

	mu    sync.Mutex
	spans map[hold]trace.Span // of the bodies that run now
}

// hold names one hold of one lock.
type hold struct {
	holder, name string
	token        lease.Token
}

var _ lease.Observer = (*Telemetry)(nil)

// New makes the instruments. Their faults are reported all at once.
func New(o *Options) (*Telemetry, error) {
	if o == nil {
		o = &Options{}
	}
	t := &Telemetry{opt: *o, spans: map[hold]trace.Span{}}
	if t.opt.MeterProvider == nil {
		t.opt.MeterProvider = otel.GetMeterProvider()
	}
	if t.opt.TracerProvider == nil {
		t.opt.TracerProvider = otel.GetTracerProvider()
	}
	t.tracer = t.opt.TracerProvider.Tracer(Scope)
	var err error
	t.inst, err = newInstruments(t.opt.MeterProvider.Meter(Scope))
	return t, err
}

type instruments struct {
	attempts, jeopardies, losses, namesakes, failures, writes metric.Int64Counter
	active                                                    metric.Int64UpDownCounter
	wait, hold, renewal                                       metric.Float64Histogram
	tries                                                     metric.Int64Histogram
}

// The boundaries of the histograms: requests take milliseconds, waits and holds up to hours.
var (
	requestSeconds = []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}
	holdSeconds    = []float64{.01, .1, .5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400}
	someTries      = []float64{1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000}
)

func newInstruments(m metric.Meter) (instruments, error) {
	var i instruments
	var errs []error
	counter := func(name, unit, what string) metric.Int64Counter {
		c, err := m.Int64Counter("cloudlease."+name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
		return c
	}
	seconds := func(name, what string, bounds []float64) metric.Float64Histogram {
		h, err := m.Float64Histogram("cloudlease."+name, metric.WithUnit("s"), metric.WithDescription(what),
			metric.WithExplicitBucketBoundaries(bounds...))
		errs = append(errs, err)
		return h
	}
	i.attempts = counter("acquire.attempts", "{attempt}", "Attempts to acquire a lock.")
	i.jeopardies = counter("lease.jeopardies", "{lease}", "Times that a third of a lease was left and no renewal had passed.")
	i.losses = counter("lease.losses", "{lease}", "Leases that were lost.")
	i.namesakes = counter("lease.namesakes", "{holder}", "Other instances with this client's name that were seen to hold a lock.")
	i.failures = counter("failures", "{request}", "Requests to the lock service that failed.")
	i.writes = counter("fence.writes", "{write}", "Guarded writes.")
	i.wait = seconds("acquire.duration", "Time to a grant, waiting included.", holdSeconds)
	i.hold = seconds("lease.hold.duration", "Time from a grant to its end.", holdSeconds)
	i.renewal = seconds("renewal.duration", "Duration of renewals.", requestSeconds)
	var err error
	i.active, err = m.Int64UpDownCounter("cloudlease.lease.active", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases that are held now."))
	errs = append(errs, err)
	i.tries, err = m.Int64Histogram("cloudlease.acquire.tries", metric.WithUnit("{attempt}"),
		metric.WithDescription("Attempts that a grant took."), metric.WithExplicitBucketBoundaries(someTries...))
	return i, errors.Join(append(errs, err)...)
}

// The attributes' names.
const (
	lockName  = attribute.Key("cloudlease.lock.name")
	outcome   = attribute.Key("cloudlease.outcome")
	operation = attribute.Key("cloudlease.operation")
	endKey    = attribute.Key("cloudlease.end")
	lossKind  = attribute.Key("cloudlease.loss.kind")
	tokenKey  = attribute.Key("cloudlease.token")
	holderKey = attribute.Key("cloudlease.holder")
	errorType = attribute.Key("error.type")
)

// with are the attributes of a measurement about a lock; an error adds its type.
func (t *Telemetry) with(name string, err error, kv ...attribute.KeyValue) metric.MeasurementOption {
	if t.opt.Lock != nil && name != "" {
		if value := t.opt.Lock(name); value != "" {
			kv = append(kv, lockName.String(value))
		}
	}
	if err != nil {
		kv = append(kv, errorType.String(classOf(err)))
	}
	return metric.WithAttributeSet(attribute.NewSet(kv...))
}

var classes = map[error]string{
	lease.ErrHeld: "held", lease.ErrPassed: "passed", lease.ErrLost: "lost", lease.ErrReleased: "released",
	lease.ErrStale: "stale", lease.ErrConflict: "conflict", lease.ErrInvalid: "invalid", lease.ErrDenied: "denied",
	lease.ErrMisconfigured: "misconfigured", lease.ErrUnavailable: "unavailable", lease.ErrInDoubt: "in_doubt",
	lease.ErrClosed: "closed",
}

// classOf is the class of err: one of a fixed set.
func classOf(err error) string {
	if e, ok := errors.AsType[*lease.Error](err); ok {
		return classes[e.Class]
	}
	for class, name := range classes { // matches at most one
		if errors.Is(err, class) {
			return name
		}
	}
	return "_OTHER"
}
