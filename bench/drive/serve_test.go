package drive_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bench/drive"
)

// fake is a library whose locks with an "h" are held.
type fake struct{ opened int }

func (f *fake) Open(context.Context) (drive.Client, error) {
	f.opened++
	return f, nil
}

func (f *fake) Acquire(ctx context.Context, _ string) error {
	<-ctx.Done() // it waits for ever
	return context.Cause(ctx)
}

func (f *fake) Try(_ context.Context, lock string) error {
	time.Sleep(time.Second)
	if lock == "h" {
		return drive.ErrHeld
	}
	return nil
}
func (f *fake) Renew(context.Context, string) error   { return drive.ErrUnsupported }
func (f *fake) Release(context.Context, string) error { return errors.New("broken\nin two lines") }
func (f *fake) Deliver(_ context.Context, job string, at time.Time) error {
	if job != "job" || at.Unix() != 60 {
		return errors.New("wrong arguments")
	}
	return nil
}

// TestServe: one line for each line, whatever the other operations do.
func TestServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, ask := io.Pipe()
		told, out := io.Pipe()
		f := &fake{}
		served := make(chan error, 1)
		go func() { served <- drive.Serve(t.Context(), f, "fake 1.0", in, out) }()
		lines := bufio.NewScanner(told)
		expect := func(want string) {
			require.True(t, lines.Scan())
			require.Equal(t, want, lines.Text())
		}
		expect("ready fake 1.0")
		for _, x := range []struct{ line, want string }{
			{"1 try a x", "1 ok 1000000000"},
			{"2 try a h", "2 held 1000000000"},
			{"3 renew b x", "3 no 0"},
			{"4 release a x", "4 error 0 broken; in two lines"},
			{"5 deliver a job 60", "5 ok 0"},
			{"6 deliver a job x", `6 error 0 strconv.ParseInt: parsing "x": invalid syntax`},
			{"7 open c", "7 ok 0"},
			{"8 dance c", `8 error 0 there is no operation "dance"`},
		} {
			_, err := io.WriteString(ask, x.line+"\n")
			require.NoError(t, err)
			expect(x.want)
		}
		require.Equal(t, 3, f.opened, "a client is made when it is first named")
		_, err := io.WriteString(ask, "9 acquire a x\n")
		require.NoError(t, err)
		require.NoError(t, ask.Close())
		require.NoError(t, <-served, "the end of the input ends what is under way")
		expect("9 error 0 context canceled")
		require.NoError(t, told.Close())
	})
}

func TestServeRefusesNonsense(t *testing.T) {
	require.ErrorContains(t, drive.Serve(t.Context(), &fake{}, "fake", strings.NewReader("1 try\n"), io.Discard), "asks for nothing")
}
