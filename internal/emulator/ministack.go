package emulator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Region is where everything in ministack is, and its AWS account Account.
const (
	Region  = "eu-west-1"
	Account = "000000000000"
)

// MinistackOptions choose how ministack runs. The zero value is an engine on a free port.
type MinistackOptions struct {
	// Port is where to listen; 0: a free one.
	Port int
	// Dir is for the code of the functions; empty: a directory that Close removes.
	Dir string
	// Log gets what ministack prints, without the functions' output, which is in CloudWatch Logs; nil: nobody.
	Log io.Writer
}

// ministackTimeout bounds the start of ministack, which takes three seconds on an idle machine.
const ministackTimeout = time.Minute

// StartMinistack starts ministack, which stands in for AWS, in memory, and returns when it answers. Its environment, and so that
// of the functions it runs, holds nothing of this process's but PATH. ctx bounds the start only. The process dies with this one,
// and the functions with it.
func StartMinistack(ctx context.Context, o MinistackOptions) (*Engine, error) {
	python, launcher, err := ministackCommand()
	if err != nil {
		return nil, err
	}
	remove := func() error { return nil }
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "cloudlease-ministack-"); err != nil {
			return nil, fmt.Errorf("start ministack: %w", err)
		}
		remove = func() error { return os.RemoveAll(o.Dir) }
	}
	e, err := startMinistack(ctx, exec.CommandContext(context.WithoutCancel(ctx), python, launcher, "--parent", "--port", strconv.Itoa(o.Port)), o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start ministack: %w", err), remove())
	}
	end := e.close
	e.close = sync.OnceValue(func() error { return errors.Join(end(), remove()) })
	return e, nil
}

func startMinistack(ctx context.Context, cmd *exec.Cmd, o MinistackOptions) (*Engine, error) {
	cmd.Dir = o.Dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + o.Dir, "HOME=" + o.Dir, "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1",
		"AWS_DEFAULT_REGION=" + Region, "MINISTACK_REGION=" + Region, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
	}
	p, err := startProcess(cmd, o.Log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, ministackTimeout)
	defer cancel()
	url, err := p.ready(ctx)
	if err == nil {
		url = strings.TrimSpace(url)
		err = answers(ctx, url+"/_ministack/health")
	}
	if err != nil {
		_ = p.kill() // it may have ended already, which is what err says then
		return nil, err
	}
	return p.engine(url), nil
}

// ministackCommand finds the Python environment and the launcher, and says what to do where one is missing.
func ministackCommand() (python, launcher string, err error) {
	dir, err := localstack()
	if err != nil {
		return "", "", err
	}
	python = filepath.Join(dir, ".venv", "bin", "python")
	if _, err := os.Stat(filepath.Join(dir, ".venv", ".stamp")); err != nil {
		return "", "", fmt.Errorf("ministack is not installed in %s: run `make setup`", dir)
	}
	return python, filepath.Join(dir, "ministack-server.py"), nil
}
