package leaseotel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/leaseotel"
	"github.com/cloudlease/cloudlease/memlease"
)

// backend collects what Telemetry tells.
type backend struct {
	t      *testing.T
	reader *sdk.ManualReader
	spans  *tracetest.SpanRecorder
	tel    *leaseotel.Telemetry
}

func newBackend(t *testing.T, o leaseotel.Options) *backend {
	t.Helper()
	b := &backend{t: t, reader: sdk.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	o.MeterProvider = sdk.NewMeterProvider(sdk.WithReader(b.reader))
	o.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(b.spans))
	var err error
	b.tel, err = leaseotel.New(&o)
	require.NoError(t, err)
	return b
}

// read are all series: "name unit {attributes}" -> the sum, or "count/sum" of a histogram.
func (b *backend) read() map[string]string {
	b.t.Helper()
	var got metricdata.ResourceMetrics
	require.NoError(b.t, b.reader.Collect(b.t.Context(), &got))
	series := map[string]string{}
	for _, scope := range got.ScopeMetrics {
		require.Equal(b.t, leaseotel.Scope, scope.Scope.Name)
		for _, m := range scope.Metrics {
			require.NotEmpty(b.t, m.Description)
			put := func(set attribute.Set, value string) {
				key := strings.TrimPrefix(m.Name, "cloudlease.") + " " + m.Unit
				for _, kv := range set.ToSlice() {
					key += " " + strings.TrimPrefix(string(kv.Key), "cloudlease.") + "=" + kv.Value.String()
				}
				series[key] = value
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					put(p.Attributes, fmt.Sprint(p.Value))
				}
			case metricdata.Histogram[int64]:
				for _, p := range data.DataPoints {
					put(p.Attributes, fmt.Sprintf("%d/%d", p.Count, p.Sum))
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					put(p.Attributes, fmt.Sprintf("%d/%.1f", p.Count, p.Sum))
				}
			default:
				require.Failf(b.t, "unknown data", "%T", data)
			}
		}
	}
	return series
}

// require demands series, and none beside those named.
func (b *backend) require(want map[string]string) {
	b.t.Helper()
	require.Equal(b.t, want, b.read())
}

func (b *backend) client(s lease.Store, holder string) *lease.Client {
	b.t.Helper()
	c, err := lease.New(s, &lease.Options{TTL: 6 * time.Second, Margin: time.Second, Holder: holder, Observer: b.tel})
	require.NoError(b.t, err)
	return c
}

// network is a memlease.Store's Intercept that fails the operations that are down.
type network struct{ down sync.Map }

func (n *network) cut(ops ...string) {
	for _, op := range ops {
		n.down.Store(op, true)
	}
}

func (n *network) intercept(_ context.Context, op string, do func() error) error {
	if _, down := n.down.Load(op); down {
		return errAway
	}
	return do()
}

var errAway = &lease.Error{Op: "call", Class: lease.ErrUnavailable, Err: errors.New("no route")}

// A life with contention, a loss and failures, in numbers. No lock's name is an attribute.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t, leaseotel.Options{})
		svc, net := memlease.NewService(), &network{}
		one := b.client(svc.Store(&memlease.Options{Intercept: net.intercept}), "w-1")
		two := b.client(svc.Store(nil), "w-1")

		l, err := one.Acquire(t.Context(), "billing")
		require.NoError(t, err)
		time.Sleep(time.Second)
		_, err = two.TryAcquire(t.Context(), "billing")
		require.ErrorIs(t, err, lease.ErrHeld)
		b.require(map[string]string{
			"acquire.attempts {attempt} outcome=granted": "1", "acquire.attempts {attempt} outcome=held": "1",
			"acquire.duration s": "1/0.0", "acquire.tries {attempt}": "1/1", "lease.active {lease}": "1",
			"lease.namesakes {holder}": "1",
		})
		require.NoError(t, l.Release(t.Context()))

		l, err = one.Acquire(t.Context(), "billing")
		require.NoError(t, err)
		time.Sleep(3 * time.Second) // one renewal
		net.cut("renew", "acquire", "release")
		<-l.Done()
		_, err = one.TryAcquire(t.Context(), "billing")
		require.ErrorIs(t, err, lease.ErrUnavailable)
		synctest.Wait()
		series := b.read()
		failed := series["failures {request} operation=renew error.type=unavailable"]
		require.NotEmpty(t, failed)
		require.Equal(t, failed, strings.Split(series["renewal.duration s error.type=unavailable"], "/")[0])
		for key, want := range map[string]string{
			"renewal.duration s":                                               "1/0.0",
			"lease.active {lease}":                                             "0",
			"lease.jeopardies {lease}":                                         "1",
			"lease.losses {lease} loss.kind=unrenewed":                         "1",
			"lease.hold.duration s end=released":                               "1/1.0",
			"failures {request} operation=acquire error.type=unavailable":      "1",
			"acquire.attempts {attempt} outcome=failed error.type=unavailable": "1",
		} {
			require.Equal(t, want, series[key], "%s in %v", key, slices.Sorted(maps.Keys(series)))
		}
		require.Contains(t, series, "lease.hold.duration s end=lost")
		for key := range series {
			require.NotContains(t, key, "billing")
			require.NotContains(t, key, "w-1")
		}
		require.NoError(t, two.Close(t.Context()))
		_ = one.Close(t.Context())
	})
}

// A waiter's grant tells how long and how many attempts it took; a release that fails ends the hold too.
func TestContentionFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t, leaseotel.Options{Lock: func(name string) string {
			kind, _, _ := strings.Cut(name, "/")
			return kind
		}})
		svc, net := memlease.NewService(), &network{}
		other, err := lease.New(svc.Store(nil), &lease.Options{Observer: lease.ObserverFunc(func(lease.Event) {})})
		require.NoError(t, err)
		held, err := other.TryAcquire(t.Context(), "order/4711")
		require.NoError(t, err)
		c := b.client(svc.Store(&memlease.Options{Intercept: net.intercept}), "w-1")
		time.AfterFunc(10*time.Second, func() { _ = held.Release(t.Context()) })
		l, err := c.Acquire(t.Context(), "order/4711")
		require.NoError(t, err)
		net.cut("release")
		require.Error(t, l.Release(t.Context()))
		series := b.read()
		var attempts, wait float64
		_, err = fmt.Sscanf(series["acquire.tries {attempt} lock.name=order"], "1/%f", &attempts)
		require.NoError(t, err)
		_, err = fmt.Sscanf(series["acquire.duration s lock.name=order"], "1/%f", &wait)
		require.NoError(t, err)
		require.InDelta(t, 10.5, wait, 0.6)
		require.Equal(t, fmt.Sprint(attempts-1), series["acquire.attempts {attempt} lock.name=order outcome=held"])
		require.Contains(t, series, "lease.hold.duration s end=release_failed lock.name=order")
		require.Equal(t, "0", series["lease.active {lease} lock.name=order"])
		require.Equal(t, "1", series["failures {request} lock.name=order operation=release error.type=unavailable"])
		require.NoError(t, errors.Join(other.Close(t.Context()), c.Close(t.Context())))
	})
}

// The spans of a wait, a hold that is lost, and guarded writes, each under its parent.
func TestSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t, leaseotel.Options{})
		svc, net := memlease.NewService(), &network{}
		store := svc.Store(&memlease.Options{Intercept: net.intercept})
		c, results := b.client(store, "w-1"), b.tel.Guard(store.Guard())
		l, err := b.tel.Acquire(t.Context(), c, "billing")
		require.NoError(t, err)
		ctx, cancel := l.Context(t.Context())
		defer cancel()
		err = b.tel.Body(func(ctx context.Context, l *lease.Lease) error {
			require.NoError(t, fence.Put(ctx, results, l, "sum", nil))
			_, err := results.Get(ctx, "sum")
			require.NoError(t, err)
			net.cut("renew")
			<-ctx.Done()
			time.Sleep(time.Second)
			require.NoError(t, results.Put(t.Context(), "sum", nil, l.Token()+1, "another"))
			require.ErrorIs(t, fence.Put(context.WithoutCancel(ctx), results, l, "sum", nil), lease.ErrStale)
			return nil
		})(ctx, l)
		require.NoError(t, err)
		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		held, err := b.client(svc.Store(nil), "w-2").TryAcquire(t.Context(), "other")
		require.NoError(t, err)
		_, err = b.tel.Acquire(short, c, "other")
		require.ErrorIs(t, err, lease.ErrHeld)

		spans := map[string][]sdktrace.ReadOnlySpan{}
		for _, s := range b.spans.Ended() {
			spans[s.Name()] = append(spans[s.Name()], s)
		}
		hold := spans["lease hold"][0]
		require.Equal(t, codes.Error, hold.Status().Code, "it was lost")
		require.Contains(t, hold.Attributes(), attribute.String("cloudlease.lock.name", "billing"))
		require.Contains(t, hold.Attributes(), attribute.Int64("cloudlease.token", int64(l.Token())))
		require.Contains(t, hold.Attributes(), attribute.String("error.type", "lost"))
		var events []string
		for _, e := range hold.Events() {
			events = append(events, e.Name)
		}
		require.Contains(t, events, string(lease.RenewFailed))
		require.Contains(t, events, string(lease.Jeopardy))
		require.Contains(t, events, string(lease.Lost))

		puts := spans["fence put"]
		require.Len(t, puts, 3)
		require.Equal(t, hold.SpanContext().SpanID(), puts[0].Parent().SpanID())
		require.Equal(t, codes.Unset, puts[0].Status().Code)
		require.Contains(t, puts[2].Attributes(), attribute.String("error.type", "stale"))
		require.Len(t, spans["fence get"], 1)

		waits := spans["lease acquire"]
		require.Len(t, waits, 2)
		require.Contains(t, waits[0].Attributes(), attribute.String("cloudlease.holder", l.Holder()))
		require.Contains(t, waits[1].Attributes(), attribute.String("cloudlease.holder", held.Holder()))
		require.Equal(t, time.Second, waits[1].EndTime().Sub(waits[1].StartTime()))
		require.Equal(t, "1", b.read()["fence.writes {write} outcome=stale error.type=stale"])
		require.Equal(t, "2", b.read()["fence.writes {write} outcome=stored"])
		require.NoError(t, held.Release(t.Context()))
		_ = c.Close(t.Context())
	})
}

// A user's own fenced write, an unguarded body, a failing one and one that panics.
func TestWrappersOfOtherThings(t *testing.T) {
	b := newBackend(t, leaseotel.Options{Lock: func(name string) string { return name }})
	ctx := t.Context()
	require.NoError(t, b.tel.Stale(ctx, "billing", nil))
	refused := fmt.Errorf("update: %w", lease.ErrStale)
	require.Equal(t, refused, b.tel.Stale(ctx, "billing", refused))
	broken := errors.New("broken")
	require.Equal(t, broken, b.tel.Stale(ctx, "billing", broken))
	b.require(map[string]string{
		"fence.writes {write} lock.name=billing outcome=stored":                   "1",
		"fence.writes {write} lock.name=billing outcome=stale error.type=stale":   "1",
		"fence.writes {write} lock.name=billing outcome=failed error.type=_OTHER": "1",
	})
	fail := b.tel.Body(func(context.Context, *lease.Lease) error { return broken })
	require.Equal(t, broken, fail(ctx, nil))
	require.Panics(t, func() { _ = b.tel.Body(func(context.Context, *lease.Lease) error { panic("broken") })(ctx, nil) })
	for _, s := range b.spans.Ended() {
		require.Equal(t, codes.Error, s.Status().Code)
	}
	require.Len(t, b.spans.Ended(), 2)
}

// Every event goes on to Options.Next, and kinds of recipes are no metric.
func TestNext(t *testing.T) {
	var told []lease.EventKind
	b := newBackend(t, leaseotel.Options{Next: lease.ObserverFunc(func(e lease.Event) { told = append(told, e.Kind) })})
	b.tel.Observe(lease.Event{Kind: "elected", Name: "office"})
	b.tel.Observe(lease.Event{Kind: lease.Abandoned, Name: "office"})
	require.Equal(t, []lease.EventKind{"elected", lease.Abandoned}, told)
	b.require(map[string]string{})
	b.tel.Observe(lease.Event{Kind: lease.Abandoned, Name: "office", Err: errAway})
	b.require(map[string]string{"failures {request} operation=give_back error.type=unavailable": "1"})
}

// TestNothingElseLinksOpenTelemetry: the core and the recipes stay free of it, and this package of the SDK.
func TestNothingElseLinksOpenTelemetry(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "../lease", "../fence", "../memlease", "../singleton",
		"../election", "../dynamolock").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "cloudlease/election")
	require.NotContains(t, string(out), "opentelemetry")
	out, err = exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "go.opentelemetry.io/otel/metric")
	require.NotContains(t, string(out), "go.opentelemetry.io/otel/sdk")
}
