package template

import (
	"fmt"
	"slices"
	"strings"
)

// actions are all that a role of the template may be given. Which of them a function needs, its own test records.
var actions = []string{
	"dynamodb:GetItem", "dynamodb:Query", "dynamodb:Scan", "dynamodb:UpdateItem", "lambda:InvokeFunction", "logs:CreateLogStream",
	"logs:PutLogEvents", "sqs:SendMessage",
}

// network is AWS's own policy for a function in a VPC. The actions in it are not confined to a resource by anybody.
const network = "arn:aws:iam::aws:policy/service-role/AWSLambdaVPCAccessExecutionRole"

// Permissions are what the role may do, each as the action and the resource: "dynamodb:GetItem LockTable.Arn".
func (s *Stack) Permissions(role string) []string {
	var all []string
	for _, p := range list(s.Resources[role].Properties, "Policies") {
		for _, st := range list(p, "PolicyDocument", "Statement") {
			for _, a := range list(st, "Action") {
				for _, r := range list(st, "Resource") {
					all = append(all, fmt.Sprintf("%v %v", a, r))
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

func (s *Stack) may(role, action, resource string) bool {
	return slices.Contains(s.Permissions(role), action+" "+resource)
}

// roleOf is the role that a property such as "DynamoRole.Arn" names.
func roleOf(v any) string {
	name, _ := strings.CutSuffix(fmt.Sprint(v), ".Arn")
	return name
}

func (s *Stack) checkRole(r Resource, f *findings) {
	trusted := list(r.Properties, "AssumeRolePolicyDocument", "Statement")
	f.want(len(trusted) == 1, "it is not assumed by one service")
	for _, st := range trusted {
		switch service := text(st, "Principal", "Service"); service {
		case "lambda.amazonaws.com":
		case "scheduler.amazonaws.com":
			f.want(text(st, "Condition", "StringEquals", "aws:SourceAccount") == Own["AWS::AccountId"], "other accounts' schedules may assume it")
		default:
			f.add("it is assumed by %q", service)
		}
	}
	for _, m := range list(r.Properties, "ManagedPolicyArns") {
		f.want(m == network && s.Parameters["SubnetIds"] != "", "it has the policy %v", m)
	}
	for _, p := range list(r.Properties, "Policies") {
		for _, st := range list(p, "PolicyDocument", "Statement") {
			f.want(text(st, "Effect") == "Allow" && at(st, "NotAction") == nil && at(st, "NotResource") == nil, "a statement does not simply allow")
		}
	}
	all := s.Permissions(r.Name)
	f.want(len(all) == len(slices.Compact(slices.Clone(all))), "it is given a permission twice")
	for _, p := range all {
		action, resource, _ := strings.Cut(p, " ")
		f.want(slices.Contains(actions, action), "it is given %s, which no function here needs, or which is not spelled right", action)
		f.want(resource != "" && !strings.Contains(resource, "*"), "%s is not confined to a resource", action)
	}
	used := false
	for _, other := range s.Resources {
		used = used || roleOf(other.Properties["Role"]) == r.Name || roleOf(at(other.Properties, "Target", "RoleArn")) == r.Name
	}
	f.want(used, "nothing has this role")
}
