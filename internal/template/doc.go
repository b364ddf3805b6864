// Package template reads the deployment template, resolves it as CloudFormation would for given parameters, and finds what
// cfn-lint does not look for: whether what is deployed fits the functions. It knows the few intrinsic functions and the part of
// CloudWatch's filter patterns that the template uses, and reports others as errors.
package template
