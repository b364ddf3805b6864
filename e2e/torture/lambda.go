//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/e2e/fakelambda"
	"github.com/cloudlease/cloudlease/e2e/torture/proxy"
	"github.com/cloudlease/cloudlease/e2e/torture/secret"
	"github.com/cloudlease/cloudlease/e2e/torture/service"
	"github.com/cloudlease/cloudlease/internal/emulator"
)

// The job of the Lambda functions.
const (
	functionTTL    = 3 * time.Second
	functionLimit  = 15 * time.Second
	paymentsPerDay = 3
	functionPace   = 20 * time.Millisecond // per payment
)

// firstDay is the first occurrence.
var firstDay = time.Date(2024, time.January, 2, 6, 0, 0, 0, time.UTC)

// lambdas is a scheduled job whose occurrences are delivered to several Lambda execution environments, more than once.
type lambdas struct {
	Options
	out    io.Writer
	rand   *rand.Rand
	engine *service.Engine
	api    *dynamodb.Client // past the proxies
	envs   []*environment
	bag    []string // faults to come
	owed   []string // those that have not hit anything yet

	secrets secret.Book

	mu     sync.Mutex
	writes map[string]int // by day: results that the engine stored
	counts map[string]int
	faulty map[string]bool // days during which a fault was injected
	ran    map[string]int  // by day: deliveries that told to have run it
	wrong  []string
}

// environment is one Lambda execution environment behind its proxy.
type environment struct {
	*fakelambda.Env

	name  string
	proxy *proxy.Proxy
}

// newLambdas builds the function and starts everything. Close it, also after an error.
func newLambdas(ctx context.Context, o Options, out io.Writer) (*lambdas, error) {
	l := &lambdas{
		Options: o, out: out, rand: rand.New(rand.NewPCG(o.Seed, 9)), //nolint:gosec // it shall be repeatable
		owed: slices.Clone(lambdaFaults), writes: map[string]int{}, counts: map[string]int{}, faulty: map[string]bool{}, ran: map[string]int{},
	}
	bootstrap := filepath.Join(o.Dir, "bootstrap")
	build := exec.CommandContext(ctx, "go", "build", "-tags", "lambda.norpc", "-o", bootstrap,
		"github.com/cloudlease/cloudlease/functions/dynamolock")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return l, fmt.Errorf("build functions/dynamolock: %w\n%s", err, said)
	}
	engine, err := service.DynamoDB{}.Start(ctx, filepath.Join(o.Dir, "data"), 0)
	if err != nil {
		return l, err
	}
	l.engine, l.api = engine, emulator.Client(engine.URL, nil)
	service.TellCredentials(service.DynamoDB{}, l.secrets.Add)
	if err := l.fill(ctx); err != nil {
		return l, err
	}
	for n := range o.Workers {
		e, err := l.environment(ctx, bootstrap, n)
		if err != nil {
			return l, err
		}
		l.envs = append(l.envs, e)
	}
	return l, nil
}

func (l *lambdas) environment(ctx context.Context, bootstrap string, n int) (*environment, error) {
	at, err := url.Parse(l.engine.URL)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("l%d", n+1)
	p, err := proxy.New(ctx, proxy.Options{
		Name: name, Target: at.Host, Service: service.DynamoDB{}, Seed: l.Seed*1000 + uint64(n), //nolint:gosec // small
		Log: l.logRequest, Secret: l.secrets.Add,
	})
	if err != nil {
		return nil, err
	}
	env, err := fakelambda.New(fakelambda.Options{
		Bootstrap: bootstrap, Timeout: functionLimit, Freeze: true, Stop: fakelambda.StopKill,
		Env: []string{
			"LEASE_TABLE=locks", "PAYMENTS_TABLE=payments", "RESULTS_TABLE=results", "LEASE_TTL=" + functionTTL.String(),
			"SETTLEMENT_PACE=" + functionPace.String(), "AWS_ENDPOINT_URL=" + p.URL(),
			"AWS_ACCESS_KEY_ID=" + service.AccessKey, "AWS_SECRET_ACCESS_KEY=" + service.SecretKey, "AWS_SESSION_TOKEN=" + service.SessionToken,
		},
	})
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return &environment{Env: env, name: name, proxy: p}, nil
}

// Close ends everything.
func (l *lambdas) Close() error {
	var errs []error
	for _, e := range l.envs {
		e.Close()
		errs = append(errs, e.proxy.Close())
	}
	if l.engine != nil {
		errs = append(errs, l.engine.Kill())
	}
	return errors.Join(errs...)
}

// logRequest counts the results that are stored.
func (l *lambdas) logRequest(e proxy.Entry) {
	if e.Op != "results.UpdateItem" || e.Status != 200 {
		return
	}
	var key struct{ Key struct{ S string } }
	_, text, _ := strings.Cut(e.Key, " ")
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := json.Unmarshal([]byte(text), &key); err != nil {
		l.wrong = append(l.wrong, fmt.Sprintf("a result was written under %q", e.Key))
		return
	}
	l.writes[key.Key.S]++
}

func (l *lambdas) found(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

func (l *lambdas) count(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[what]++
}

// occurrence is the nth scheduled instant, and the key under which its result is kept.
func occurrence(n int) (at time.Time, key string) {
	at = firstDay.AddDate(0, 0, n)
	return at, "settlement/" + at.AddDate(0, 0, -1).Format(time.DateOnly)
}

// cents is a made-up amount.
func cents(n, i int) int { return 1000 + 37*n + 1009*i }

// fill makes the tables and puts the payments into them.
func (l *lambdas) fill(ctx context.Context) error {
	err := emulator.CreateTables(ctx, l.api,
		dynamolock.CreateTableInput("locks"), service.Table("results", "key"), service.Table("payments", "day", "id"))
	if err != nil {
		return err
	}
	str := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	for n := range l.Occurrences {
		at, _ := occurrence(n)
		for i := range paymentsPerDay {
			_, err := l.api.PutItem(ctx, &dynamodb.PutItemInput{
				TableName: aws.String("payments"), Item: map[string]types.AttributeValue{
					"day": str(at.AddDate(0, 0, -1).Format(time.DateOnly)), "id": str(fmt.Sprintf("p%d", i)), "currency": str("EUR"),
					"cents": &types.AttributeValueMemberN{Value: fmt.Sprint(cents(n, i))},
				},
			})
			if err != nil {
				return fmt.Errorf("put a payment: %w", err)
			}
		}
	}
	return nil
}

// check reads the results.
func (l *lambdas) check(ctx context.Context) error {
	guard, err := dynamolock.NewGuard(l.api, "results", nil)
	if err != nil {
		return err
	}
	last := uint64(0)
	for n := range l.Occurrences {
		_, key := occurrence(n)
		have, err := guard.Get(ctx, key)
		if err != nil {
			return err
		}
		var rep struct {
			Count int
			Total int `json:"total_cents"`
			Token uint64
		}
		if err := json.Unmarshal(have.Value, &rep); err != nil {
			l.found("the result of %s is %q", key, have.Value)
			continue
		}
		want := 0
		for i := range paymentsPerDay {
			want += cents(n, i)
		}
		if rep.Count != paymentsPerDay || rep.Total != want {
			l.found("the result of %s is %s, expected %d cents", key, have.Value, want)
		}
		if rep.Token <= last || rep.Token != uint64(have.Token) {
			l.found("the result of %s has token %d, stored with %d, after %d", key, rep.Token, have.Token, last)
		}
		last = rep.Token
		l.checkOnce(key)
	}
	return nil
}

// checkSecrets looks for secrets in what the functions have printed.
func (l *lambdas) checkSecrets() error {
	printed := map[string]string{}
	for _, e := range l.envs {
		printed["the log of "+e.name] = strings.Join(e.Lines(), "\n")
	}
	leaks, err := l.secrets.Check(service.DynamoDB{}.SecretKinds(), nil, printed)
	l.wrong = append(l.wrong, leaks...)
	return err
}

// checkOnce looks at how often a day was run. A run whose release was lost with its process is done again: that is promised to
// be the only reason.
func (l *lambdas) checkOnce(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writes[key] > 1 {
		l.counts["results written again by a later run"]++
	}
	if !l.faulty[key] && (l.writes[key] != 1 || l.ran[key] != 1) {
		l.wrong = append(l.wrong, fmt.Sprintf("%s had no fault and was run %d times and written %d times", key, l.ran[key], l.writes[key]))
	}
}

// print tells the figures and returns the number of violations.
func (l *lambdas) print(took time.Duration) int {
	for _, e := range l.envs {
		for kind, n := range e.proxy.Stats().Faults {
			l.counts[string(kind)] += n
		}
		l.counts["cold starts"] += e.Starts()
	}
	var names []string
	for name := range l.counts {
		names = append(names, name)
	}
	slices.Sort(names)
	_, _ = fmt.Fprintf(l.out, "  %d occurrences in %.0f s\n", l.Occurrences, took.Seconds())
	for _, name := range names {
		_, _ = fmt.Fprintf(l.out, "  %5d %s\n", l.counts[name], name)
	}
	for _, kind := range lambdaFaults {
		if l.counts[kind] == 0 {
			l.wrong = append(l.wrong, fmt.Sprintf("fault %q was never injected", kind))
		}
	}
	for _, w := range l.wrong {
		_, _ = fmt.Fprintf(l.out, "  VIOLATION: %s\n", w)
	}
	return len(l.wrong)
}
