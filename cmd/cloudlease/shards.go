package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudlease/cloudlease/cmd/cloudlease/internal/render"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/shard"
)

func (a *app) shardsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "shards GROUP", Short: "Show the shards of a group: owners, tokens, checkpoints, and tries without progress",
		Long: `Show the shards of a group of workers (package shard), by id. AGE is the time since the
last checkpoint, or since the claim if there was none after it. TRIES counts the claims
since the last checkpoint that were not handed back in order: a number that grows is a
record that kills its workers, and such a shard is parked after a few.

It costs a scan of the group's records, and a read for each worker that owns a shard.`,
		Example: `  cloudlease shards orders
  cloudlease shards orders -o json | jq '.[] | select(.tries > 1)'`,
		Args: named(),
		RunE: func(c *cobra.Command, args []string) error { return failed(a.shards(c.Context(), args[0])) },
	}
}

// shardStatus is a shard as JSON tells it.
type shardStatus struct {
	ID       string      `json:"id"`
	State    shard.State `json:"state,omitempty"`
	Owner    string      `json:"owner,omitempty"`
	Token    lease.Token `json:"token"`
	Position string      `json:"position,omitempty"`
	Age      float64     `json:"age_seconds"`
	Tries    int         `json:"tries"`
	Parents  []string    `json:"parents,omitempty"`
	Parked   string      `json:"parked,omitempty"`
	Fault    string      `json:"fault,omitempty"`
}

func (a *app) shards(ctx context.Context, group string) error {
	var all []shard.Status
	err := a.group(ctx, "asking for the shards of "+quoted(group), func(ctx context.Context, c *lease.Client) (err error) {
		all, err = shard.List(ctx, c, group)
		return err
	})
	if err != nil {
		return err
	}
	if a.json() {
		shown := make([]shardStatus, 0, len(all))
		for _, s := range all {
			fault := ""
			if s.Err != nil {
				fault = s.Err.Error()
			}
			shown = append(shown, shardStatus{s.ID, s.State, s.Owner, s.Token, s.Position, s.Age.Seconds(), s.Tries, s.Parents, s.Parked, fault})
		}
		return render.JSON(a.out, shown)
	}
	rows := make([][]string, 0, len(all))
	for _, s := range all {
		note := s.Parked
		if s.Err != nil {
			note = s.Err.Error()
		}
		age := ""
		if s.Age > 0 {
			age = s.Age.Round(time.Second).String()
		}
		rows = append(rows, []string{s.ID, string(s.State), tokenText(s.Token), s.Position, age, strconv.Itoa(s.Tries), s.Owner, note})
	}
	return render.Table(a.out, []string{"SHARD", "STATE", "TOKEN", "POSITION", "AGE", "TRIES", "OWNER", "NOTE"}, rows)
}

// group does something with a client for a moment.
func (a *app) group(ctx context.Context, what string, do func(context.Context, *lease.Client) error) error {
	c, err := a.client(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leavePatience)
		defer cancel()
		_ = c.Close(ctx) // what it has to give back ends by itself
	}()
	ctx, done := a.asking(ctx, what)
	defer done()
	return do(ctx, c)
}

func (a *app) parkCommand() *cobra.Command {
	var why string
	c := &cobra.Command{
		Use: "park GROUP SHARD", Short: "Give a shard to no worker until unpark",
		Long: `Give a shard to no worker until unpark. Its owner hands it back in order, after a last
checkpoint, within its next look at the group. Who parked it and why is kept with it.`,
		Example: `  cloudlease park orders shard-7 --why 'record 12 cannot be read'`,
		Args:    named("SHARD"),
		RunE: func(c *cobra.Command, args []string) error {
			err := a.group(c.Context(), "parking "+quoted(args[1]), func(ctx context.Context, c *lease.Client) error {
				return shard.Park(ctx, c, args[0], args[1], who(a.getenv), why)
			})
			if err != nil {
				return failed(err)
			}
			return failed(a.tell(did{Did: "park", Name: args[1]}, fmt.Sprintf("parked %s: no worker has it until cloudlease unpark", args[1])))
		},
	}
	c.Flags().StringVar(&why, "why", "", "the reason, shown by shards")
	return c
}

func (a *app) unparkCommand() *cobra.Command {
	var at string
	c := &cobra.Command{
		Use: "unpark GROUP SHARD", Short: "Let a parked shard be claimed again",
		Long: `Let a parked shard be claimed again, from its last checkpoint, and forget its tries. If the
shard's record had been deleted its position is not known: say where to go on with --at;
whatever was processed after that position is processed again.`,
		Example: `  cloudlease unpark orders shard-7
  cloudlease unpark orders shard-7 --at 49590338271490256608559692538361571095921575989136588898`,
		Args: named("SHARD"),
		RunE: func(c *cobra.Command, args []string) error {
			given := c.Flags().Changed("at")
			err := a.group(c.Context(), "unparking "+quoted(args[1]), func(ctx context.Context, c *lease.Client) error {
				if given {
					return shard.UnparkAt(ctx, c, args[0], args[1], at)
				}
				return shard.Unpark(ctx, c, args[0], args[1])
			})
			if err != nil {
				return failed(err)
			}
			return failed(a.tell(did{Did: "unpark", Name: args[1]}, args[1]+" can be claimed again"))
		},
	}
	c.Flags().StringVar(&at, "at", "", "the `position` to go on from, instead of the last checkpoint")
	return c
}

func (a *app) reseedCommand() *cobra.Command {
	return &cobra.Command{
		Use: "reseed GROUP", Short: "Raise the tokens of all shards of a group after a restore of the store",
		Long: `Raise the tokens of all shards of a group above every token that the group has handed out.
It is for the time after the store was restored from an older copy: the records know only
the tokens of that time. Stop all workers of the group before.`,
		Example: `  cloudlease reseed orders`,
		Args:    named(),
		RunE: func(c *cobra.Command, args []string) error {
			err := a.group(c.Context(), "reseeding "+quoted(args[0]), func(ctx context.Context, c *lease.Client) error {
				return shard.Reseed(ctx, c, args[0])
			})
			if err != nil {
				return failed(err)
			}
			return failed(a.tell(did{Did: "reseed", Name: args[0]}, "the next tokens of "+args[0]+" are above all that were handed out"))
		},
	}
}
