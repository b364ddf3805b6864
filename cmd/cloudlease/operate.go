package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cloudlease/cloudlease/lease"
)

func (a *app) breakCommand() *cobra.Command {
	var token uint64
	var yes bool
	var why string
	c := &cobra.Command{
		Use: "break NAME --token N --yes", Short: "Take a lock away from the holder that status shows",
		Long: `Take a lock away from the holder that has the token you saw with status. If another has
it by now, or nobody, nothing is changed and the exit code is 1. Who broke it, when and
why is kept with the lock.

The holder learns it at its next renewal, and trusts its lease until then: for up to one
TTL two may believe that they have the lock. The next token is higher, so a fence
refuses what the former holder writes after the next one has written.`,
		Example: `  cloudlease status backup
  cloudlease break backup --token 1764490000123 --why 'host is gone' --yes`,
		Args: named(),
		RunE: func(c *cobra.Command, args []string) error {
			return failed(a.breakLock(c.Context(), args[0], lease.Token(token), yes, why))
		},
	}
	c.Flags().Uint64Var(&token, "token", 0, "the token of the grant to break, as status shows it")
	c.Flags().BoolVar(&yes, "yes", false, "do it: two may believe that they have the lock for up to one TTL")
	c.Flags().StringVar(&why, "why", "", "the reason, kept with the lock")
	return c
}

func (a *app) breakLock(ctx context.Context, name string, token lease.Token, yes bool, why string) error {
	if token == 0 {
		return usage("--token is missing: look at the lock with cloudlease status %s, and give the token that it shows", quoted(name))
	}
	if !yes {
		return usage("its holder may go on for up to one TTL; if that is all right, run: cloudlease break %s --token %d --yes", quoted(name), token)
	}
	s, err := a.open(ctx)
	if err != nil {
		return err
	}
	b, ok := s.(lease.Breaker)
	if !ok {
		return lease.Invalid("break", name, "%s cannot break locks; wait for the lease's end", s.Limits().Store)
	}
	ctx, done := a.asking(ctx, "breaking "+quoted(name))
	defer done()
	if err := b.Break(ctx, name, token, lease.Reason{By: who(a.getenv), Why: why}); err != nil {
		return err
	}
	done()
	return a.tell(did{Did: "break", Name: name, Token: token},
		fmt.Sprintf("broke %s (token %d): it is free, and the next token is higher", name, token))
}

func (a *app) floorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "floor NAME TOKEN", Short: "Make the next token of a lock higher than a given one",
		Long: `Make the next token of a lock higher than TOKEN. It is needed after the store was
restored from an older copy, when acquiring fails because tokens would fall back. Use
the highest token that the protected storage has seen. A lock that is held is left alone
(exit code 191); a floor that is reached already is a success.`,
		Example: `  cloudlease floor backup 1764490000123`,
		Args:    named("TOKEN"),
		RunE: func(c *cobra.Command, args []string) error {
			token, err := strconv.ParseUint(args[1], 10, 64)
			if err != nil || token == 0 || lease.Token(token) >= lease.MaxToken {
				return usage("the token %q is not a whole number from 1 to %d", args[1], lease.MaxToken-1)
			}
			return failed(a.floor(c.Context(), args[0], lease.Token(token)))
		},
	}
}

func (a *app) floor(ctx context.Context, name string, token lease.Token) error {
	s, err := a.open(ctx)
	if err != nil {
		return err
	}
	f, ok := s.(lease.Floorer)
	if !ok {
		return lease.Invalid("raise the floor of", name, "the tokens of %s cannot fall behind", s.Limits().Store)
	}
	ctx, done := a.asking(ctx, "raising the floor of "+quoted(name))
	defer done()
	err = f.RaiseFloor(ctx, name, token)
	if held, ok := errors.AsType[*lease.HeldError](err); ok {
		return &exitError{code: codeHeld, err: fmt.Errorf("%w; nothing was changed: wait until it is free, or break it first", held)}
	}
	if err != nil {
		return err
	}
	done()
	return a.tell(did{Did: "floor", Name: name, Token: token}, fmt.Sprintf("the next token of %s is above %d", name, token))
}
