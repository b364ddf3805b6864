//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/emulator"
)

// The tables and the job, as the functions' configuration names them.
const (
	locksTable    = "locks"
	paymentsTable = "payments"
	resultsTable  = "results"
	jobName       = "settlement"
)

// The tempo of the demonstration.
const (
	leaseTTL = 3 * time.Second        // how long a lease lasts without renewal
	pace     = 300 * time.Millisecond // per payment, and before the write of the result
	limit    = time.Minute            // of one invocation
)

// occurrences are the days on which the job is due, one for each scene. It settles the payments of the day before, which are
// so many that a run takes a little longer than a lease lasts without renewal.
var occurrences = []string{"2026-03-02", "2026-03-03", "2026-03-04"}

const paymentsPerDay = 11

// dayBefore is the day that the job settles.
func dayBefore(day string) string {
	at, err := time.Parse(time.DateOnly, day)
	if err != nil {
		return day
	}
	return at.AddDate(0, 0, -1).Format(time.DateOnly)
}

// world is everything that runs: a store, and five processes that share it.
type world struct {
	tell
	fence    bool
	dir      string // temporary
	recorder *Recorder
	engine   *emulator.Engine
	store    *dynamodb.Client
	procs    []*process

	deliveries []*delivery
	invoking   sync.WaitGroup
	acts       []act
	scenes     []time.Time // their ends
}

// act is something that was done to a process.
type act struct {
	at   time.Time
	kind MarkKind
	to   *process
}

// tell writes to the reader.
type tell struct {
	out   io.Writer
	began time.Time
}

func (t *tell) say(format string, args ...any) { _, _ = fmt.Fprintf(t.out, format+"\n", args...) }

// now is say with the time since the first delivery.
func (t *tell) now(format string, args ...any) {
	t.say("%7.1f s  %s", time.Since(t.began).Seconds(), fmt.Sprintf(format, args...))
}

// newWorld builds the function, starts the store and fills it. Close it, also after an error.
func newWorld(ctx context.Context, out io.Writer, root string, fence bool) (*world, error) {
	w := &world{tell: tell{out: out, began: time.Now()}, fence: fence}
	dir, err := os.MkdirTemp("", "cloudlease-demo-")
	if err != nil {
		return w, err
	}
	w.dir = dir
	bootstrap := filepath.Join(dir, "bootstrap")
	if err := build(ctx, root, bootstrap); err != nil {
		return w, err
	}
	w.say("Built the Lambda function functions/dynamolock in %.1f s.", time.Since(w.began).Seconds())
	w.recorder = NewRecorder(emulator.NewEmbedded(), map[string]string{locksTable: "name", resultsTable: "key"})
	if w.engine, err = emulator.Serve(w.recorder); err != nil {
		return w, err
	}
	w.store = emulator.Client(w.engine.URL, nil)
	if err := w.fill(ctx); err != nil {
		return w, err
	}
	for _, name := range []string{"A", "B", "C", "D", "E"} {
		p, err := newProcess(name, bootstrap, w.config())
		if err != nil {
			return w, err
		}
		w.procs = append(w.procs, p)
	}
	w.say("Started a DynamoDB-compatible store in memory, on %s, with %d payments of %d days.",
		strings.TrimPrefix(w.engine.URL, "http://"), paymentsPerDay*len(occurrences), len(occurrences))
	return w, nil
}

// Close ends every process and removes what was built.
func (w *world) Close() error {
	var errs []error
	for _, p := range w.procs {
		p.env.Close()
	}
	w.invoking.Wait()
	if w.engine != nil {
		errs = append(errs, w.engine.Close())
	}
	if w.dir != "" {
		errs = append(errs, os.RemoveAll(w.dir))
	}
	return errors.Join(errs...)
}

// build makes the function's binary as it is made for Lambda, for this machine.
func build(ctx context.Context, root, bootstrap string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "lambda.norpc", "-o", bootstrap, "./functions/dynamolock")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("build functions/dynamolock: %w\n%s", err, said)
	}
	return nil
}

// config is the functions' environment.
func (w *world) config() []string {
	fence := "on"
	if !w.fence {
		fence = "off"
	}
	return []string{
		"LEASE_TABLE=" + locksTable, "PAYMENTS_TABLE=" + paymentsTable, "RESULTS_TABLE=" + resultsTable,
		"LEASE_JOB=" + jobName, "LEASE_TTL=" + leaseTTL.String(),
		"SETTLEMENT_PACE=" + pace.String(), "SETTLEMENT_FENCE=" + fence,
		"AWS_ENDPOINT_URL=" + w.engine.URL, "AWS_ACCESS_KEY_ID=demo", "AWS_SECRET_ACCESS_KEY=demo",
	}
}

// fill creates the tables and puts the payments into them.
func (w *world) fill(ctx context.Context) error {
	for _, table := range []*dynamodb.CreateTableInput{
		dynamolock.CreateTableInput(locksTable), tableOf(resultsTable, "key"), tableOf(paymentsTable, "day", "id"),
	} {
		if _, err := w.store.CreateTable(ctx, table); err != nil {
			return fmt.Errorf("create table %s: %w", *table.TableName, err)
		}
	}
	for _, day := range occurrences {
		for i := range paymentsPerDay {
			payment := Item{
				"day": str(dayBefore(day)), "id": str(fmt.Sprintf("p%03d", i+1)), "currency": str("EUR"),
				"cents": &types.AttributeValueMemberN{Value: fmt.Sprint(centsOf(day, i))},
			}
			if _, err := w.store.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String(paymentsTable), Item: payment}); err != nil {
				return fmt.Errorf("put a payment: %w", err)
			}
		}
	}
	return nil
}

// centsOf is a made-up amount.
func centsOf(day string, i int) int { return 1250 + (i*7919+int(day[len(day)-1])*271*(i+3))%90000 }

// tableOf describes a table with string keys: the hash key and, if there is a second, the range key.
func tableOf(name string, keys ...string) *dynamodb.CreateTableInput {
	in := &dynamodb.CreateTableInput{TableName: &name, BillingMode: types.BillingModePayPerRequest}
	for i, key := range keys {
		kind := []types.KeyType{types.KeyTypeHash, types.KeyTypeRange}[i]
		in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: aws.String(key), KeyType: kind})
		in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{
			AttributeName: aws.String(key), AttributeType: types.ScalarAttributeTypeS,
		})
	}
	return in
}

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
