package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/internal/blobfake"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
)

// binary is the real one, built by the first test that asks.
var binary = sync.OnceValues(func() (string, error) {
	file := filepath.Join(work, "azure")
	out, err := exec.CommandContext(context.Background(), "go", "build", "-o", file, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the handler: %w: %s", err, out)
	}
	return file, nil
})

var work string // a directory for the binary

func TestMain(m *testing.M) {
	var err error
	if work, err = os.MkdirTemp("", "azure"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := os.RemoveAll(work); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// soon bounds what is only waited for, never what is asserted.
const soon = 2 * time.Minute

// world is a storage account with three payments on 1 March 2026.
type world struct {
	t          *testing.T
	engine     *emulator.Engine
	connection string
	locks      *bloblease.Store
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	e, err := emulator.Serve(blobfake.New("locks", "payments", "results"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	w := &world{t: t, engine: e, connection: emulator.AzuriteConnection(e.URL + "/" + emulator.AzuriteAccount)}
	w.locks, err = bloblease.New(w.container("locks"), nil)
	require.NoError(t, err)
	w.pay("2026-03-01", 3)
	return w
}

func (w *world) container(name string) *container.Client {
	w.t.Helper()
	c, err := container.NewClientFromConnectionString(w.connection, name, nil)
	require.NoError(w.t, err)
	return c
}

func (w *world) pay(day string, n int) {
	w.t.Helper()
	lines := strings.Repeat(`{"id":"p","cents":100,"currency":"EUR"}`+"\n", n)
	_, err := w.container("payments").NewBlockBlobClient(day+".jsonl").UploadBuffer(w.t.Context(), []byte(lines), nil)
	require.NoError(w.t, err)
}

// lock is the job's lock as the storage has it.
func (w *world) lock() lease.Info {
	w.t.Helper()
	info, err := w.locks.Inspect(w.t.Context(), "settlement")
	require.NoError(w.t, err)
	return info
}

// running waits until a run holds the lock.
func (w *world) running() lease.Info {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		info, err := w.locks.Inspect(w.t.Context(), "settlement")
		return err == nil && info.State == lease.Held
	}, soon, 10*time.Millisecond)
	return w.lock()
}

// unlock takes the lock away, as an operator does, or in place of the wait for the end of a dead run's lease.
func (w *world) unlock(held lease.Info) {
	w.t.Helper()
	require.NoError(w.t, w.locks.Break(w.t.Context(), "settlement", held.Token, lease.Reason{By: "test", Why: "it is stuck"}))
}

// instance is one running custom handler, as the Functions host starts it.
type instance struct {
	w     *world
	cmd   *exec.Cmd
	url   string
	ended chan error
	mu    sync.Mutex
	logs  bytes.Buffer
}

// Write implements io.Writer for the process's stderr.
func (i *instance) Write(b []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.logs.Write(b)
}

// says waits for a text in the process's logs, which come by another way than its answers.
func (i *instance) says(text string) {
	i.w.t.Helper()
	require.Eventually(i.w.t, func() bool { return strings.Contains(i.logged(), text) }, soon, time.Millisecond, "it logs %q", text)
}

func (i *instance) logged() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.logs.String()
}

// start starts an instance. The free port that it is told may be gone by then, in which case it ends and the next one is tried.
func (w *world) start(env ...string) *instance {
	w.t.Helper()
	file, err := binary()
	require.NoError(w.t, err)
	for range 10 {
		port := freePort(w.t)
		i := &instance{w: w, url: fmt.Sprintf("http://127.0.0.1:%d/", port), ended: make(chan error, 1)}
		i.cmd = exec.CommandContext(context.WithoutCancel(w.t.Context()), file)
		i.cmd.Stderr = i
		i.cmd.Env = append([]string{
			"LEASE_CONTAINER=locks", "PAYMENTS_CONTAINER=payments", "RESULTS_CONTAINER=results", "LEASE_TTL=15s",
			"AZURE_STORAGE_CONNECTION_STRING=" + w.connection, fmt.Sprint("FUNCTIONS_CUSTOMHANDLER_PORT=", port),
		}, env...)
		require.NoError(w.t, i.cmd.Start())
		gone := make(chan struct{})
		go func() {
			i.ended <- i.cmd.Wait()
			close(gone)
		}()
		w.t.Cleanup(func() {
			_ = i.cmd.Process.Kill() // it may have ended
			<-gone
			require.NotContains(w.t, i.logged(), emulator.AzuriteKey[:20], "the account's key is a secret")
		})
		if i.answers(gone) {
			return i
		}
	}
	require.FailNow(w.t, "it does not listen")
	return nil
}

// answers waits until the instance answers the host's question whether anybody is there.
func (i *instance) answers(gone <-chan struct{}) bool {
	i.w.t.Helper()
	for until := time.Now().Add(soon); time.Now().Before(until); {
		if status, err := i.send(http.MethodGet, "", nil, nil); err == nil {
			require.Equal(i.w.t, http.StatusOK, status)
			return true
		}
		select {
		case <-gone:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return false
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().(*net.TCPAddr).Port
}

// send makes one request and decodes its answer into out, if that is not nil.
func (i *instance) send(method, path string, body io.Reader, out any) (status int, err error) {
	req, err := http.NewRequestWithContext(context.WithoutCancel(i.w.t.Context()), method, i.url+path, body)
	if err != nil {
		return 0, err
	}
	req.Close = true
	req.Header.Set("X-Azure-Functions-InvocationId", "9d1f1c3e")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	if out == nil {
		return resp.StatusCode, nil
	}
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	return resp.StatusCode, err
}

// answered is what the host gets.
type answered struct {
	status      int
	Outputs     map[string]any
	Logs        []string
	ReturnValue json.RawMessage
}

func (a answered) logs() string { return strings.Join(a.Logs, "\n") }

// outcome is how the delivery ended.
func (a answered) outcome() string { return fmt.Sprint(a.Outputs["outcome"]) }

// invocation is what the host posts for a timer with the given data.
func invocation(data string) string {
	return `{"Data":{"timer":` + data + `},"Metadata":{"sys":{"MethodName":"settlement","UtcNow":"2026-03-09T11:12:13.0123456Z",` +
		`"RandGuid":"1f0e"}}}`
}

// timer is the data of a timer whose monitor has stored next.
func timer(next string) string {
	return `{"Schedule":{"AdjustForDST":true},"ScheduleStatus":{"Last":"2026-03-01T00:05:00.0004321+00:00","Next":"` + next +
		`","LastUpdated":"2026-03-01T00:05:00.0004321+00:00"},"IsPastDue":false}`
}

// due is the occurrence that most tests are about.
const due = "2026-03-02T00:05:00+00:00"

func (i *instance) post(data string) (a answered, err error) {
	a.status, err = i.send(http.MethodPost, function, strings.NewReader(invocation(data)), &a)
	return a, err
}

func (i *instance) invoke(data string) answered {
	i.w.t.Helper()
	a, err := i.post(data)
	require.NoError(i.w.t, err)
	require.NotEmpty(i.w.t, a.Outputs, "the host warns if they are")
	require.NotEmpty(i.w.t, a.ReturnValue)
	return a
}

// begin invokes in the background.
func (i *instance) begin(data string) <-chan answered {
	done := make(chan answered, 1)
	go func() {
		a, err := i.post(data)
		if err != nil {
			a.Logs = []string{err.Error()}
		}
		done <- a
	}()
	return done
}

// wait waits for the process's end.
func (i *instance) wait() error {
	select {
	case err := <-i.ended:
		return err
	case <-time.After(soon):
		return errors.New("it does not end")
	}
}
