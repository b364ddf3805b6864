package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudlease/cloudlease/cmd/cloudlease/internal/backend"
	"github.com/cloudlease/cloudlease/cmd/cloudlease/internal/render"
)

// doctorPatience bounds a whole check.
const doctorPatience = 2 * time.Minute

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check the store end to end, and say what to fix",
		Long: `Check that the store can keep locks: reachability, credentials, each permission by itself,
how the table or container is made, and this host's clock against the service's (for
information: leases do not depend on it). At the end it takes, renews and gives back one
lock, ` + backend.Probe + `, which is nobody else's and stays behind, free; no
other lock is touched. Permissions are tried with requests whose conditions cannot hold, so
that they change nothing.

  ok    as it has to be                      fail  leases do not work: do what "fix" says
  warn  leases work, something else may not  skip  could not be looked at

The exit code is 1 if anything failed.`,
		Example: `  cloudlease doctor
  cloudlease doctor --store 'azblob://account/locks' -o json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return failed(a.doctor(c.Context())) },
	}
}

func (a *app) doctor(ctx context.Context) error {
	b, err := a.place()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	done := a.waitFor(func() string { return "checking " + b.URL() })
	faults := 0
	var items []backend.Item
	b.Check(ctx, func(i backend.Item) {
		if i.Status == backend.Fail {
			faults++
		}
		items = append(items, i)
	})
	done()
	if a.json() {
		err = render.JSON(a.out, map[string]any{"store": b.URL(), "ok": faults == 0, "items": items})
	} else {
		err = a.diagnosis(b, items)
	}
	if err != nil {
		return err
	}
	if faults > 0 {
		return &exitError{code: codeNo, err: fmt.Errorf("%d of %d checks failed", faults, len(items))}
	}
	return nil
}

func (a *app) diagnosis(b backend.Backend, items []backend.Item) error {
	if _, err := fmt.Fprintf(a.out, "%s\n", b.URL()); err != nil {
		return err
	}
	rows := make([][2]string, 0, len(items))
	for _, i := range items {
		rows = append(rows, [2]string{fmt.Sprintf("  %-4s  %s", i.Status, i.Check), i.Found})
		if i.Fix != "" && i.Status != backend.OK {
			rows = append(rows, [2]string{"", "fix: " + i.Fix})
		}
	}
	return render.Fields(a.out, rows...)
}
