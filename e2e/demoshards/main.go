//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/e2e/fakelambda"
	"github.com/cloudlease/cloudlease/internal/emulator"
)

// The stream and the tempo of the demonstration.
const (
	group   = "stream"
	shards  = 8
	records = 120
	batch   = 5 // of the function
	most    = 4 // shards of one invocation

	pace     = 40 * time.Millisecond
	leaseTTL = 3 * time.Second
	limit    = 6 * time.Second // of one invocation
	reserve  = 2400 * time.Millisecond
	patience = 5 * time.Minute
	rounds   = 20 // at most
)

var names = []string{"A", "B", "C"}

// victim is killed in this round, this long after its beginning.
const (
	victim      = 1
	victimRound = 2
	victimAfter = 2500 * time.Millisecond
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout)
	stop()
	os.Exit(code)
}

// run is the whole program. It returns the exit code.
func run(ctx context.Context, args []string, out io.Writer) int {
	flags := flag.NewFlagSet("demoshards", flag.ContinueOnError)
	flags.SetOutput(out)
	svg := flags.String("svg", "", "where the picture goes (default docs/demo-shards.svg in the module)")
	if flags.Parse(args) != nil || flags.NArg() > 0 {
		return 2
	}
	if err := demo(ctx, *svg, out); err != nil {
		_, _ = fmt.Fprintf(out, "\ndemo-shards: FAILED: %v\n", err)
		return 1
	}
	_, _ = fmt.Fprintln(out, "\ndemo-shards: ok")
	return 0
}

func demo(ctx context.Context, svg string, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "cloudlease-demoshards-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bootstrap := filepath.Join(dir, "bootstrap")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "lambda.norpc", "-o", bootstrap, "./functions/shardworker")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build functions/shardworker: %w\n%s", err, said)
	}
	d := newDoor(emulator.NewEmbedded())
	engine, err := emulator.Serve(d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	if err := createTables(ctx, emulator.Client(engine.URL, nil)); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "Built functions/shardworker; a store in memory; a stream of %d shards with %d records each.\n", shards, records)
	w := &world{door: d, out: out}
	defer w.close()
	for _, name := range names {
		env, err := fakelambda.New(fakelambda.Options{
			Bootstrap: bootstrap, Timeout: limit, Freeze: true, Stop: fakelambda.StopKill, Env: environment(name, engine.URL),
		})
		if err != nil {
			return fmt.Errorf("process %s: %w", name, err)
		}
		w.envs = append(w.envs, env)
	}
	if err := w.play(ctx); err != nil {
		return err
	}
	story := d.story()
	if err := check(story, w.killed, out); err != nil {
		return err
	}
	if svg == "" {
		svg = filepath.Join(root, "docs", "demo-shards.svg")
	}
	if err := os.WriteFile(svg, picture(story, w.began, w.killed), 0o644); err != nil { //nolint:gosec // a picture for everybody
		return fmt.Errorf("write the picture: %w", err)
	}
	_, _ = fmt.Fprintf(out, "The picture of this run: %s\n", svg)
	return nil
}

// world is the processes.
type world struct {
	door   *door
	out    io.Writer
	envs   []*fakelambda.Env
	began  time.Time
	killed time.Time
}

func (w *world) close() {
	for _, env := range w.envs {
		env.Close()
	}
}

// play invokes the function in all environments, round after round, until every shard has ended.
func (w *world) play(ctx context.Context) error {
	w.began = time.Now()
	for round := 1; round <= rounds; round++ {
		var wg sync.WaitGroup
		answers := make([]string, len(w.envs))
		errs := make([]error, len(w.envs)+1) // the last is that of the kill
		for i, env := range w.envs {
			wg.Go(func() {
				got, err := env.Invoke(ctx, fakelambda.Invocation{Payload: []byte(`{}`)})
				answers[i], errs[i] = string(got.Body), err
				switch {
				case got.ErrorType == fakelambda.ErrorExit && i == victim && round == victimRound:
					answers[i] = "killed"
				case err == nil && got.ErrorType != "":
					errs[i] = fmt.Errorf("process %s: %s: %s", names[i], got.ErrorType, got.ErrorBody)
				}
			})
		}
		if round == victimRound {
			wg.Go(func() {
				time.Sleep(victimAfter)
				w.killed = time.Now()
				errs[len(w.envs)] = w.envs[victim].Kill()
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(w.out, "%5.1f s  round %d:", time.Since(w.began).Seconds(), round)
		for i, a := range answers {
			_, _ = fmt.Fprintf(w.out, "  %s %s", names[i], a)
		}
		_, _ = fmt.Fprintln(w.out)
		if w.door.ended() == shards {
			return nil
		}
	}
	return fmt.Errorf("%d of %d shards have ended after %d rounds", w.door.ended(), shards, rounds)
}

func environment(name, url string) []string {
	return []string{
		"LEASE_TABLE=locks", "RESULTS_TABLE=results", "LEASE_TTL=" + leaseTTL.String(), "LEASE_HOLDER=" + name,
		"SHARD_GROUP=" + group, fmt.Sprintf("SHARD_MAX=%d", most), "SHARD_RESERVE=" + reserve.String(),
		fmt.Sprintf("STREAM_SHARDS=%d", shards), fmt.Sprintf("STREAM_RECORDS=%d", records), "STREAM_PACE=" + pace.String(),
		"AWS_REGION=eu-west-1", "AWS_ENDPOINT_URL=" + url, "AWS_ACCESS_KEY_ID=demo", "AWS_SECRET_ACCESS_KEY=demo",
	}
}

func createTables(ctx context.Context, sdk *dynamodb.Client) error {
	results := &dynamodb.CreateTableInput{
		TableName: aws.String("results"), BillingMode: types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("key"), KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("key"), AttributeType: types.ScalarAttributeTypeS}},
	}
	for _, in := range []*dynamodb.CreateTableInput{dynamolock.CreateTableInput("locks"), results} {
		if _, err := sdk.CreateTable(ctx, in); err != nil {
			return fmt.Errorf("create the table %s: %w", *in.TableName, err)
		}
	}
	return nil
}

// moduleRoot is the directory of the module that the demonstration is started in.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("ask go for the module: %w", err)
	}
	file := string(out[:max(len(out)-1, 0)])
	if file == "" || file == os.DevNull {
		return "", errors.New("this directory is in no Go module; start the demonstration in a checkout of cloudlease")
	}
	return filepath.Dir(file), nil
}
