package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cloudlease/cloudlease/cmd/cloudlease/internal/backend"
)

func (a *app) initCommand() *cobra.Command {
	var o backend.InitOptions
	var form string
	c := &cobra.Command{
		Use: "init", Short: "Make the table or the container, or print a policy or a template for it",
		Long: `Make the table or the container that the store's URL names, if it is not there, and wait
until it can keep locks. What exists is checked and not changed, but for what the flags
turn on.

With --print nothing is made: a document is written to stdout. Forms for DynamoDB are
policy (IAM), terraform and cloudformation; for Azure policy (a custom role) and
terraform; for Consul policy (ACL rules) and terraform.`,
		Example: `  cloudlease init --store 'dynamodb://locks?region=eu-west-1' --deletion-protection
  cloudlease init --print policy > locker.json
  cloudlease init --print terraform > locks.tf`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return failed(a.init(c.Context(), form, o)) },
	}
	c.Flags().StringVar(&form, "print", "", "print a document instead: policy, terraform or cloudformation")
	c.Flags().BoolVar(&o.Protect, "deletion-protection", false, "DynamoDB: refuse the table's deletion (of a table that is made now)")
	c.Flags().BoolVar(&o.Backups, "backups", false, "DynamoDB: continuous backups (point-in-time recovery)")
	c.Flags().BoolVar(&o.Purge, "purge-records", false, "DynamoDB: let the service remove old records of occurrences, never locks")
	_ = c.RegisterFlagCompletionFunc("print", cobra.FixedCompletions(
		[]string{backend.Policy, backend.Terraform, backend.CloudFormation}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (a *app) init(ctx context.Context, form string, o backend.InitOptions) error {
	b, err := a.place()
	if err != nil {
		return err
	}
	if form != "" {
		text, err := b.Document(form)
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(a.out, text)
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	ctx, done := a.asking(ctx, "making "+b.URL())
	defer done()
	made, err := b.Init(ctx, o)
	if err != nil {
		return err
	}
	done()
	return a.tell(did{Did: "init", Store: b.URL(), Found: made}, made)
}
