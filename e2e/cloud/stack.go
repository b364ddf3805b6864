//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/cloudlease/cloudlease/internal/archive"
	"github.com/cloudlease/cloudlease/internal/emulator"
)

// bucket is where the archives of the functions go.
const bucket = "cloudlease-code"

// pack builds the functions for this machine, whatever the template says, uploads them and returns the template with their
// addresses, as `aws cloudformation package` does.
func (c *cloud) pack(ctx context.Context, path, dir string, functions ...string) (template string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	_, err = c.objects.CreateBucket(ctx, &s3.CreateBucketInput{
		Bucket: aws.String(bucket), CreateBucketConfiguration: &s3types.CreateBucketConfiguration{LocationConstraint: emulator.Region},
	})
	if _, there := errors.AsType[*s3types.BucketAlreadyOwnedByYou](err); err != nil && !there {
		return "", fmt.Errorf("make a bucket: %w", err)
	}
	for _, name := range functions {
		zip, err := build(ctx, filepath.Dir(path), dir, name)
		if err != nil {
			return "", err
		}
		_, err = c.objects.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String(bucket), Key: aws.String(name + ".zip"), Body: bytes.NewReader(zip)})
		if err != nil {
			return "", fmt.Errorf("upload %s: %w", name, err)
		}
	}
	packed := regexp.MustCompile(`CodeUri: dist/(\w+\.zip)`).ReplaceAllString(string(text), "CodeUri: s3://"+bucket+"/$1")
	if packed == string(text) {
		return "", fmt.Errorf("%s names no archive in dist/", path)
	}
	return packed, nil
}

// build makes the archive of a function of the module at root: one program, called bootstrap.
func build(ctx context.Context, root, dir, name string) ([]byte, error) {
	program := filepath.Join(dir, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "lambda.norpc", "-o", program, "./functions/"+name)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build functions/%s: %w\n%s", name, err, said)
	}
	code, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = archive.Zip(&b, []archive.File{{Name: "bootstrap", Mode: 0o755, Data: code}}, time.Now())
	return b.Bytes(), err
}

// stack is a deployed template.
type stack struct {
	*cloud
	name     string
	template string
	outputs  map[string]string
}

// deploy makes the stack, or changes its parameters, and returns when that is done.
func (s *stack) deploy(ctx context.Context, parameters map[string]string) error {
	var ps []types.Parameter
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		ps = append(ps, types.Parameter{ParameterKey: aws.String(key), ParameterValue: aws.String(parameters[key])})
	}
	capabilities := []types.Capability{types.CapabilityCapabilityIam, types.CapabilityCapabilityAutoExpand}
	var err error
	if s.outputs == nil {
		_, err = s.stacks.CreateStack(ctx, &cloudformation.CreateStackInput{
			StackName: &s.name, TemplateBody: &s.template, Parameters: ps, Capabilities: capabilities,
		})
	} else {
		_, err = s.stacks.UpdateStack(ctx, &cloudformation.UpdateStackInput{
			StackName: &s.name, TemplateBody: &s.template, Parameters: ps, Capabilities: capabilities,
		})
	}
	if err != nil {
		return fmt.Errorf("deploy the stack %s: %w", s.name, err)
	}
	return until(ctx, "the stack "+s.name+" is deployed", func(ctx context.Context) (bool, error) {
		out, err := s.stacks.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &s.name})
		if err != nil {
			return false, err
		}
		status := string(out.Stacks[0].StackStatus)
		if strings.Contains(status, "ROLLBACK") || strings.HasSuffix(status, "FAILED") {
			return false, fmt.Errorf("the stack %s is %s: %s", s.name, status, s.whatFailed(ctx, out.Stacks[0]))
		}
		if !strings.HasSuffix(status, "_COMPLETE") {
			return false, nil
		}
		s.outputs = map[string]string{}
		for _, o := range out.Stacks[0].Outputs {
			s.outputs[aws.ToString(o.OutputKey)] = aws.ToString(o.OutputValue)
		}
		return true, nil
	})
}

func (s *stack) whatFailed(ctx context.Context, st types.Stack) string {
	said := []string{aws.ToString(st.StackStatusReason)}
	out, err := s.stacks.DescribeStackEvents(ctx, &cloudformation.DescribeStackEventsInput{StackName: st.StackId})
	if err != nil {
		return said[0]
	}
	for _, e := range out.StackEvents {
		if strings.HasSuffix(string(e.ResourceStatus), "FAILED") {
			said = append(said, aws.ToString(e.LogicalResourceId)+": "+aws.ToString(e.ResourceStatusReason))
		}
	}
	return strings.Join(said, "; ")
}

// delete deletes the stack and then its tables, which outlive it. It returns those that did.
func (s *stack) delete(ctx context.Context) (retained []string, err error) {
	if _, err := s.stacks.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: &s.name}); err != nil {
		return nil, fmt.Errorf("delete the stack %s: %w", s.name, err)
	}
	err = until(ctx, "the stack "+s.name+" is deleted", func(ctx context.Context) (bool, error) {
		out, err := s.stacks.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &s.name})
		if err != nil {
			return strings.Contains(err.Error(), "does not exist"), nil // that is how one learns it
		}
		return out.Stacks[0].StackStatus == types.StackStatusDeleteComplete, nil
	})
	if err != nil {
		return nil, err
	}
	for _, output := range []string{"LockTableName", "PaymentsTableName", "ResultsTableName"} {
		name := s.outputs[output]
		if name == "" {
			continue
		}
		if _, err := s.tables.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name}); err != nil {
			continue
		}
		retained = append(retained, name)
		if err := s.drop(ctx, name); err != nil {
			return retained, err
		}
	}
	return retained, nil
}

// drop deletes a table that is protected from it.
func (s *stack) drop(ctx context.Context, table string) error {
	_, err := s.tables.UpdateTable(ctx, &dynamodb.UpdateTableInput{TableName: &table, DeletionProtectionEnabled: aws.Bool(false)})
	if err == nil {
		_, err = s.tables.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &table})
	}
	if err != nil {
		return fmt.Errorf("delete the table %s: %w", table, err)
	}
	return nil
}
