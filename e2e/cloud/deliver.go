//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/aws/aws-sdk-go-v2/service/scheduler/types"
)

// schedule makes n schedules for one instant, with the target of the template's own: its input is what is tested. The stand-in
// delivers an instant of the past at once.
func (s *stack) schedule(ctx context.Context, at time.Time, n int) error {
	own, err := s.schedules.GetSchedule(ctx, &scheduler.GetScheduleInput{Name: aws.String(s.name + "-settlement")})
	if err != nil {
		return fmt.Errorf("read the template's schedule: %w", err)
	}
	for i := range n {
		_, err := s.schedules.CreateSchedule(ctx, &scheduler.CreateScheduleInput{
			Name:               aws.String(fmt.Sprintf("%s-%s-%d", s.name, at.Format(time.DateOnly), i+1)),
			ScheduleExpression: aws.String("at(" + at.UTC().Format("2006-01-02T15:04:05") + ")"),
			FlexibleTimeWindow: &types.FlexibleTimeWindow{Mode: types.FlexibleTimeWindowModeOff},
			Target:             own.Target, ActionAfterCompletion: types.ActionAfterCompletionDelete,
		})
		if err != nil {
			return fmt.Errorf("make a schedule: %w", err)
		}
	}
	return nil
}

// event is what the template's schedule sends.
func event(at time.Time) []byte {
	text, err := json.Marshal(map[string]string{"scheduled-time": at.UTC().Format(time.RFC3339)})
	if err != nil {
		panic(err) // a string always encodes
	}
	return text
}

// send invokes the function n times without waiting for an answer.
func (s *stack) send(ctx context.Context, payload []byte, n int) error {
	for range n {
		_, err := s.functions.Invoke(ctx, &lambda.InvokeInput{
			FunctionName: aws.String(s.outputs["FunctionName"]), InvocationType: lambdatypes.InvocationTypeEvent, Payload: payload,
		})
		if err != nil {
			return fmt.Errorf("invoke the function: %w", err)
		}
	}
	return nil
}

// answer is what a function says that was invoked with a wait for its end.
type answer struct {
	failed bool
	body   string
}

func (s *stack) call(ctx context.Context, payload []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := s.functions.Invoke(ctx, &lambda.InvokeInput{FunctionName: aws.String(s.outputs["FunctionName"]), Payload: payload})
	if err != nil {
		return answer{}, fmt.Errorf("invoke the function: %w", err)
	}
	return answer{out.FunctionError != nil, string(out.Payload)}, nil
}

// set changes the function's environment, as an operator would, and waits until that is done.
func (s *stack) set(ctx context.Context, changes map[string]string) error {
	name := aws.String(s.outputs["FunctionName"])
	have, err := s.functions.GetFunctionConfiguration(ctx, &lambda.GetFunctionConfigurationInput{FunctionName: name})
	if err != nil {
		return fmt.Errorf("read the function's environment: %w", err)
	}
	env := have.Environment.Variables
	maps.Copy(env, changes)
	_, err = s.functions.UpdateFunctionConfiguration(ctx, &lambda.UpdateFunctionConfigurationInput{
		FunctionName: name, Environment: &lambdatypes.Environment{Variables: env},
	})
	if err != nil {
		return fmt.Errorf("change the function's environment: %w", err)
	}
	return until(ctx, "the function is changed", func(ctx context.Context) (bool, error) {
		out, err := s.functions.GetFunctionConfiguration(ctx, &lambda.GetFunctionConfigurationInput{FunctionName: name})
		if err != nil {
			return false, err
		}
		return out.LastUpdateStatus == lambdatypes.LastUpdateStatusSuccessful && out.State == lambdatypes.StateActive, nil
	})
}
