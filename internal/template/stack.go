package template

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Stack is what a template makes of parameters.
type Stack struct {
	Parameters map[string]string
	Resources  map[string]Resource // those whose condition holds

	conditions map[string]any
	names      map[string]bool // of all resources
}

// Resource is a resource with its properties resolved: a reference to another resource is its name, to an attribute
// "name.attribute".
type Resource struct {
	Name, Type                          string
	DeletionPolicy, UpdateReplacePolicy string
	Properties                          map[string]any
}

// Own are names and numbers of the account that a stack is deployed to.
var Own = map[string]string{
	"AWS::StackName": "cloudlease", "AWS::Region": "eu-west-1", "AWS::AccountId": "123456789012", "AWS::Partition": "aws",
}

// absent is what AWS::NoValue resolves to: the property is not there.
type absent struct{}

// Deploy resolves the template. What CloudFormation would refuse of the parameters, and what this package does not know, is an
// error.
func (t *Template) Deploy(parameters map[string]string) (*Stack, error) {
	s := &Stack{Parameters: map[string]string{}, Resources: map[string]Resource{}, conditions: t.section("Conditions"), names: map[string]bool{}}
	var faults []error
	for name, def := range t.section("Parameters") {
		v, err := parameter(name, def, parameters)
		faults = append(faults, err)
		s.Parameters[name] = v
	}
	for name := range parameters {
		if _, known := s.Parameters[name]; !known {
			faults = append(faults, fmt.Errorf("the template has no parameter %s", name))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if err := s.rules(t.section("Rules")); err != nil {
		return nil, err
	}
	globals, _ := at(t.root, "Globals", "Function").(map[string]any)
	resources := t.section("Resources")
	for name := range resources {
		s.names[name] = true
	}
	for name, def := range resources {
		if err := s.add(name, def, globals); err != nil {
			faults = append(faults, fmt.Errorf("resource %s: %w", name, err))
		}
	}
	return s, errors.Join(faults...)
}

// parameter is a parameter's value, if the template takes it.
func parameter(name string, def any, given map[string]string) (string, error) {
	v, ok := given[name]
	if !ok {
		if at(def, "Default") == nil {
			return "", fmt.Errorf("the parameter %s has no value and no default", name)
		}
		v = fmt.Sprint(at(def, "Default"))
	}
	if choices := list(def, "AllowedValues"); choices != nil && !slices.ContainsFunc(choices, func(c any) bool { return fmt.Sprint(c) == v }) {
		return v, fmt.Errorf("the parameter %s is %q, not one of %v", name, v, choices)
	}
	if pattern := text(def, "AllowedPattern"); pattern != "" {
		re, err := regexp.Compile("^(?:" + pattern + ")$")
		if err != nil || !re.MatchString(v) {
			return v, fmt.Errorf("the parameter %s is %q, not like %s", name, v, pattern)
		}
	}
	if text(def, "Type") == "Number" {
		n, err := strconv.Atoi(v)
		least, hasLeast := at(def, "MinValue").(int)
		most, hasMost := at(def, "MaxValue").(int)
		if err != nil || hasLeast && n < least || hasMost && n > most {
			return v, fmt.Errorf("the parameter %s is %q, not a number from %d to %d", name, v, least, most)
		}
	}
	return v, nil
}

// rules wants every assertion of the template's rules to hold.
func (s *Stack) rules(rules map[string]any) error {
	for name, rule := range rules {
		if when := at(rule, "RuleCondition"); when != nil {
			if holds, err := s.holds(when); err != nil || !holds {
				if err != nil {
					return fmt.Errorf("rule %s: %w", name, err)
				}
				continue
			}
		}
		for _, a := range list(rule, "Assertions") {
			holds, err := s.holds(at(a, "Assert"))
			if err == nil && !holds {
				err = errors.New(text(a, "AssertDescription"))
			}
			if err != nil {
				return fmt.Errorf("rule %s: %w", name, err)
			}
		}
	}
	return nil
}

// add resolves a resource, if its condition holds.
func (s *Stack) add(name string, def any, globals map[string]any) error {
	if c := text(def, "Condition"); c != "" {
		if holds, err := s.holds(map[string]any{"Condition": c}); err != nil || !holds {
			return err
		}
	}
	properties, err := s.resolve(at(def, "Properties"))
	if err != nil {
		return err
	}
	r := Resource{
		Name: name, Type: text(def, "Type"), DeletionPolicy: text(def, "DeletionPolicy"), UpdateReplacePolicy: text(def, "UpdateReplacePolicy"),
	}
	r.Properties, _ = properties.(map[string]any)
	if r.Type == "AWS::Serverless::Function" {
		for key, v := range globals {
			if _, own := r.Properties[key]; own {
				return fmt.Errorf("%s is set in Globals and here; this package merges nothing", key)
			}
			r.Properties[key] = v
		}
	}
	s.Resources[name] = r
	return nil
}

// resolve replaces the intrinsic functions in v.
func (s *Stack) resolve(v any) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 1 {
			for name, arg := range v {
				if name == "Ref" || strings.HasPrefix(name, "Fn::") {
					return s.call(name, arg)
				}
			}
		}
		m := map[string]any{}
		for key, v := range v {
			r, err := s.resolve(v)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			if r != (absent{}) {
				m[key] = r
			}
		}
		return m, nil
	case []any:
		l := make([]any, 0, len(v))
		for _, v := range v {
			r, err := s.resolve(v)
			if err != nil {
				return nil, err
			}
			if r != (absent{}) {
				l = append(l, r)
			}
		}
		return l, nil
	}
	return v, nil
}
