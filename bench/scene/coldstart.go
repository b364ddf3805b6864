//go:build unix

package scene

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cloudlease/cloudlease/bench/meter"
	"github.com/cloudlease/cloudlease/e2e/fakelambda"
	"github.com/cloudlease/cloudlease/internal/emulator"
)

// lambda: the project's function, and the floor.
func (s Subject) lambda() bool { return s.Name == "cloudlease-dynamodb" || s.Name == "sdk-dynamodb" }

// starts are how often a function is started; the median says more than the mean beside other work.
const starts = 15

// coldStart measures a function from the start of its process to its first poll for an event, and to the answer of the write that
// gave it its lock. The functions are stripped and built like those that are deployed, but for this machine.
func coldStart(ctx context.Context, w *World, s Subject) error {
	p, err := w.seat(ctx, "coldstart", s, calm)
	if err != nil {
		return err
	}
	defer p.close()
	dir, err := os.MkdirTemp("", "cloudlease-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	bootstrap := filepath.Join(dir, "bootstrap")
	if err := buildFunction(ctx, p, bootstrap); err != nil {
		return err
	}
	info, err := os.Stat(bootstrap)
	if err != nil {
		return err
	}
	if err := paymentTables(ctx, p); err != nil {
		return err
	}
	var polls, locks []time.Duration
	for i := range starts + 1 {
		poll, lock, err := startOnce(ctx, p, bootstrap, time.Now().Truncate(time.Second).Add(time.Duration(i-starts)*time.Second))
		if err != nil {
			return err
		}
		if i > 0 { // the first one reads the file from the disk
			polls, locks = append(polls, poll), append(locks, lock)
		}
	}
	p.note("size", "MiB", float64(info.Size())/(1<<20))
	p.noteTimes("to first poll ", polls)
	p.noteTimes("to first lock ", locks)
	return nil
}

func buildFunction(ctx context.Context, p *seat, to string) error {
	dir, what := filepath.Dir(p.w.dir), "./functions/dynamolock"
	if p.s.Kind == Floor {
		dir, what = p.w.dir, "./bare"
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-tags", "lambda.norpc", "-o", to, what)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", what, err, out)
	}
	return nil
}

// paymentTables are what the project's function reads and writes beside its lock: no payments, so that its body is short.
func paymentTables(ctx context.Context, p *seat) error {
	target, err := p.w.engine(ctx, DynamoDB)
	if err != nil {
		return err
	}
	if err := makeTable(ctx, target, p.set.Table+"-results", "key"); err != nil {
		return err
	}
	name, day, id := p.set.Table+"-payments", "day", "id"
	return emulator.CreateTables(ctx, emulator.Client(target, nil), &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		KeySchema: []types.KeySchemaElement{{AttributeName: &day, KeyType: types.KeyTypeHash}, {AttributeName: &id, KeyType: types.KeyTypeRange}},
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: &day, AttributeType: types.ScalarAttributeTypeS}, {AttributeName: &id, AttributeType: types.ScalarAttributeTypeS},
		},
	})
}

// startOnce starts one environment and invokes its function once.
func startOnce(ctx context.Context, p *seat, bootstrap string, occurrence time.Time) (poll, lock time.Duration, err error) {
	var locked atomic.Pointer[time.Time]
	p.OnEvent(func(e meter.Event) {
		if e.Op == "UpdateItem" && e.Status == http.StatusOK {
			locked.CompareAndSwap(nil, &e.At)
		}
	})
	defer p.OnEvent(nil)
	env, err := fakelambda.New(fakelambda.Options{
		Bootstrap: bootstrap, Timeout: 20 * time.Second, Stop: fakelambda.StopKill, Env: []string{
			"AWS_ENDPOINT_URL=" + p.set.URL, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "LEASE_TABLE=" + p.set.Table,
			"PAYMENTS_TABLE=" + p.set.Table + "-payments", "RESULTS_TABLE=" + p.set.Table + "-results",
		},
	})
	if err != nil {
		return 0, 0, err
	}
	defer env.Close()
	payload := fmt.Sprintf(`{"source":"aws.events","detail-type":"Scheduled Event","time":%q}`, occurrence.UTC().Format(time.RFC3339))
	began := time.Now()
	res, err := env.Invoke(ctx, fakelambda.Invocation{Payload: []byte(payload)})
	whole := time.Since(began)
	switch {
	case err != nil:
		return 0, 0, err
	case res.ErrorType != "":
		return 0, 0, fmt.Errorf("the function failed: %s: %s: %s", res.ErrorType, res.ErrorBody, strings.Join(env.Lines(), "; "))
	case locked.Load() == nil:
		return 0, 0, errors.New("the function took no lock")
	}
	return whole - res.Duration, locked.Load().Sub(began), nil
}
