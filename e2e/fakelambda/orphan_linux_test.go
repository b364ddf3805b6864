package fakelambda_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/e2e/fakelambda"
)

// orphanVar makes this test binary a program that leaves a function running, prints its pid and waits to be killed.
const orphanVar = "FAKELAMBDA_TEST_ORPHAN"

func init() {
	path := os.Getenv(orphanVar)
	if path == "" {
		return
	}
	env, err := fakelambda.New(fakelambda.Options{Bootstrap: path, Timeout: time.Hour})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go func() { // it does not poll, so it does not notice that the runtime API is gone
		fmt.Println(env.Invoke(context.Background(), event("hang")))
		os.Exit(1)
	}()
	if _, err := env.WaitLine(context.Background(), "started hang"); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(env.Pid())
	select {}
}

func TestProcessDiesWithTheTest(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	parent := exec.CommandContext(t.Context(), self)
	parent.Env = append(os.Environ(), orphanVar+"="+bootstrap)
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err, line)
	require.False(t, dead(pid))

	require.NoError(t, parent.Process.Kill()) // no deferred call, no cleanup
	_ = parent.Wait()
	require.Eventually(t, func() bool { return dead(pid) }, 10*time.Second, 5*time.Millisecond)
}

func TestGrandchildrenDieWithTheProcess(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *fakelambda.Env){
		"killed": func(t *testing.T, env *fakelambda.Env) { require.NoError(t, env.Kill()) },
		"exited": func(t *testing.T, env *fakelambda.Env) {
			require.Equal(t, fakelambda.ErrorExit, invoke(t, env, "exit").ErrorType)
		},
	} {
		t.Run(name, func(t *testing.T) {
			env := newEnv(t, fakelambda.Options{})
			child := call(t, env, "leave a child").Status
			require.False(t, dead(child))
			end(t, env)
			require.Eventually(t, func() bool { return dead(child) }, 10*time.Second, 5*time.Millisecond)
		})
	}
}

// The kernel sends the parent-death signal when the thread ends that started the process, not when the parent does.
func TestProcessSurvivesTheThreadThatStartedIt(t *testing.T) {
	env := newEnv(t, fakelambda.Options{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // without unlocking: the thread ends with the goroutine
		_, err := env.Invoke(context.WithoutCancel(t.Context()), event("answer"))
		if err != nil {
			t.Error(err)
		}
	}()
	<-ended
	pid := env.Pid()
	time.Sleep(100 * time.Millisecond) // for the thread to end after its goroutine
	require.Equal(t, pid, call(t, env, "answer").Pid)
	require.Equal(t, 1, env.Starts())
}

func TestPauseReturnsWhenAllThreadsStandStill(t *testing.T) {
	env := newEnv(t, fakelambda.Options{})
	done := background(t, env, "spin")
	waitLine(t, env, "started spin")
	for range 50 {
		require.NoError(t, env.Pause())
		for id, state := range threads(t, env.Pid()) {
			require.Equal(t, "T", state, "thread %s", id)
		}
		require.NoError(t, env.Resume())
	}
	require.NoError(t, env.Kill())
	require.Equal(t, fakelambda.ErrorExit, wait(t, done).ErrorType)
}

// threads gives the state of each thread of a process.
func threads(t *testing.T, pid int) map[string]string {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	states := map[string]string{}
	for _, file := range files {
		states[file] = state(file)
	}
	return states
}

// dead tells whether a process is gone, or a zombie that nobody has collected.
func dead(pid int) bool {
	s := state(fmt.Sprintf("/proc/%d/stat", pid))
	return s == "" || s == "Z"
}

// state is the letter after the name in a stat file, or empty if there is none.
func state(file string) string {
	stat, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')'):]), " ")
	return after[:1]
}
