// Command handler is a function that does what its event says.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
)

type event struct {
	Do string `json:"do"`
}

type answer struct {
	Pid      int      `json:"pid"`
	Count    int64    `json:"count"` // invocations of this process
	Ticks    int64    `json:"ticks"` // of a background goroutine since the last invocation
	ID       string   `json:"id"`
	ARN      string   `json:"arn"`
	Deadline int64    `json:"deadline"` // unix ms
	Environ  []string `json:"environ"`
	Status   int      `json:"status"`
}

var count, ticks atomic.Int64

func main() {
	switch os.Getenv("INIT") {
	case "crash":
		fmt.Fprint(os.Stderr, "crashing in init, without a newline")
		os.Exit(7)
	case "hang":
		select {}
	}
	go func() {
		for {
			time.Sleep(5 * time.Millisecond)
			ticks.Add(1)
		}
	}()
	var options []lambda.Option
	switch os.Getenv("SIGTERM") {
	case "extension":
		options = append(options, lambda.WithEnableSIGTERM(func() { fmt.Println("told to stop") }))
	case "extension-exit":
		options = append(options, lambda.WithEnableSIGTERM(func() { fmt.Println("told to stop"); os.Exit(0) }))
	case "handler":
		told := make(chan os.Signal, 1)
		signal.Notify(told, syscall.SIGTERM)
		go func() { <-told; fmt.Println("told to stop") }()
	}
	lambda.StartWithOptions(handle, options...)
}

func handle(ctx context.Context, e event) (any, error) {
	lc, _ := lambdacontext.FromContext(ctx)
	deadline, _ := ctx.Deadline()
	a := answer{
		Pid: os.Getpid(), Count: count.Add(1), Ticks: ticks.Swap(0),
		ID: lc.AwsRequestID, ARN: lc.InvokedFunctionArn, Deadline: deadline.UnixMilli(), Environ: os.Environ(),
	}
	fmt.Println("started", e.Do, lc.AwsRequestID)
	switch e.Do {
	case "fail":
		return nil, errors.New("no luck")
	case "panic":
		panic("no hope")
	case "exit":
		os.Exit(0)
	case "hang":
		time.Sleep(time.Hour)
	case "work":
		for i := range 40 {
			fmt.Println("working", i)
			time.Sleep(10 * time.Millisecond)
		}
	case "spin":
		for range 4 {
			go func() {
				for {
					count.Add(1)
				}
			}()
		}
		select {}
	case "stream and fail":
		return io.MultiReader(strings.NewReader("half"), failing{}), nil
	case "answer and hang":
		return hanging{answer: strings.NewReader(`"answered"`)}, nil
	case "answer another":
		res, err := http.Post("http://"+os.Getenv("AWS_LAMBDA_RUNTIME_API")+"/2018-06-01/runtime/invocation/another/response",
			"text/plain", bytes.NewReader([]byte("stray")))
		if err != nil {
			return nil, err
		}
		a.Status = res.StatusCode
		return a, res.Body.Close()
	case "leave a child":
		child := exec.Command("/bin/sleep", "3600")
		child.Stdout = os.Stdout // it holds the pipe open
		if err := child.Start(); err != nil {
			return nil, err
		}
		a.Status = child.Process.Pid
	}
	return a, nil
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("source ran dry") }

// hanging keeps the runtime from polling again after its answer.
type hanging struct{ answer io.Reader }

func (h hanging) Read(b []byte) (int, error) { return h.answer.Read(b) }

func (hanging) Close() error {
	time.Sleep(time.Hour)
	return nil
}
