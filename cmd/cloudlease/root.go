package main

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/cloudlease/cloudlease/cmd/cloudlease/internal/backend"
	"github.com/cloudlease/cloudlease/lease"
)

// command is the whole command line.
func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "cloudlease",
		Short: "Run commands under leases with fencing tokens, and operate the locks of a store",
		Long: `cloudlease runs a command while it holds a named lock, and ends it before another host
can get the lock. It also shows, breaks and prepares the locks that programs hold through
the Go library of the same name.

` + backend.Usage() + `

Results go to stdout, everything else to stderr. "cloudlease help exit-codes" lists the exit codes.`,
		Example: `  export CLOUDLEASE_STORE='dynamodb://locks?region=eu-west-1'
  cloudlease init                                   make the table
  cloudlease doctor                                 is all as it has to be? if not, what to do
  cloudlease run backup -- /usr/local/bin/backup    one host at a time
  cloudlease list                                   who holds what`,
		SilenceErrors: true, SilenceUsage: true, Version: version(),
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if a.output != "table" && a.output != "json" {
				return usage("-o %q is neither table nor json", a.output)
			}
			return nil
		},
	}
	root.PersistentFlags().StringVar(&a.store, "store", "", "the store's `URL`; default $"+backend.Variable)
	root.PersistentFlags().StringVarP(&a.output, "output", "o", "table", "how results are written: table or json")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Run under a lease:"},
		&cobra.Group{ID: "look", Title: "Look at locks (changes nothing):"},
		&cobra.Group{ID: "operate", Title: "Operate locks:"},
		&cobra.Group{ID: "job", Title: "Scheduled jobs (run --occurrence, and package singleton):"},
		&cobra.Group{ID: "shard", Title: "Shards that workers share (package shard):"},
		&cobra.Group{ID: "store", Title: "Prepare the store:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("run", a.runCommand())
	add("look", a.statusCommand(), a.listCommand(), a.watchCommand())
	add("operate", a.breakCommand(), a.floorCommand())
	add("job", a.historyCommand(), a.clearCommand(), a.pauseCommand(), a.resumeCommand())
	add("shard", a.shardsCommand(), a.parkCommand(), a.unparkCommand(), a.reseedCommand())
	add("store", a.initCommand(), a.doctorCommand())
	root.AddCommand(manCommand(root), &cobra.Command{
		Use: "exit-codes", Short: "The exit codes of all commands", Long: "The exit codes of all commands:\n\n" + codesHelp,
	})
	return root
}

// version is the module's, as the go command has put it into the program.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// manCommand writes the manual pages.
func manCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write the manual pages into a directory",
		Long:    "Write a manual page for every command, in section 1, into a directory that exists.",
		Example: "  cloudlease man /usr/local/share/man/man1",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			root.DisableAutoGenTag = true
			if err := doc.GenManTree(root, &doc.GenManHeader{Title: "CLOUDLEASE", Section: "1", Source: "cloudlease"}, args[0]); err != nil {
				return &exitError{code: codeNo, err: fmt.Errorf("write the manual pages: %w", err)}
			}
			return nil
		},
	}
}

// named takes the name of a lock, and more arguments, and checks the name before anything else happens.
func named(more ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		want := append([]string{"NAME"}, more...)
		if len(args) != len(want) {
			return usage("%s takes %d argument(s), %s, not %d", c.CommandPath(), len(want), strings.Join(want, " and "), len(args))
		}
		if err := lease.CheckName(args[0]); err != nil {
			return &exitError{code: codeUsage, err: err}
		}
		return nil
	}
}
