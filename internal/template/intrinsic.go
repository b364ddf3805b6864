package template

import (
	"fmt"
	"regexp"
	"strings"
)

// call is the result of an intrinsic function.
func (s *Stack) call(name string, arg any) (any, error) {
	switch name {
	case "Ref":
		return s.ref(fmt.Sprint(arg))
	case "Fn::GetAtt":
		if l := list(arg); len(l) == 2 && s.names[fmt.Sprint(l[0])] {
			return fmt.Sprintf("%v.%v", l[0], l[1]), nil
		}
		return nil, fmt.Errorf("GetAtt of %v: there is no such resource", arg)
	case "Fn::Sub":
		return s.sub(fmt.Sprint(arg))
	case "Fn::If":
		l := list(arg)
		if len(l) != 3 {
			return nil, fmt.Errorf("an If of %d parts", len(l))
		}
		holds, err := s.holds(map[string]any{"Condition": l[0]})
		if err != nil {
			return nil, err
		}
		if holds {
			return s.resolve(l[1])
		}
		return s.resolve(l[2])
	case "Fn::Join":
		l := list(arg)
		if len(l) != 2 {
			return nil, fmt.Errorf("a Join of %d parts", len(l))
		}
		parts, err := s.resolve(l[1])
		if err != nil {
			return nil, err
		}
		var all []string
		for _, p := range list(parts) {
			all = append(all, fmt.Sprint(p))
		}
		return strings.Join(all, fmt.Sprint(l[0])), nil
	}
	return nil, fmt.Errorf("the intrinsic function %s is not known here", name)
}

func (s *Stack) ref(name string) (any, error) {
	if name == "AWS::NoValue" {
		return absent{}, nil
	}
	for _, known := range []map[string]string{s.Parameters, Own} {
		if v, ok := known[name]; ok {
			return v, nil
		}
	}
	if s.names[name] {
		return name, nil
	}
	return nil, fmt.Errorf("there is no %s to refer to", name)
}

var placeholder = regexp.MustCompile(`\$\{([^}!]+)\}`)

func (s *Stack) sub(form string) (any, error) {
	var failed error
	out := placeholder.ReplaceAllStringFunc(form, func(p string) string {
		name := p[2 : len(p)-1]
		if resource, _, attribute := strings.Cut(name, "."); attribute && s.names[resource] {
			return name
		}
		v, err := s.ref(name)
		if err != nil {
			failed = err
		}
		return fmt.Sprint(v)
	})
	return out, failed
}

// holds tells whether a condition holds.
func (s *Stack) holds(v any) (bool, error) {
	m, ok := v.(map[string]any)
	if !ok || len(m) != 1 {
		return false, fmt.Errorf("%v is no condition", v)
	}
	for name, arg := range m {
		switch name {
		case "Condition":
			c, known := s.conditions[fmt.Sprint(arg)]
			if !known {
				return false, fmt.Errorf("there is no condition %v", arg)
			}
			return s.holds(c)
		case "Fn::Equals":
			l, err := s.resolve(list(arg))
			if err != nil {
				return false, err
			}
			both := list(l)
			return len(both) == 2 && fmt.Sprint(both[0]) == fmt.Sprint(both[1]), nil
		case "Fn::Not":
			holds, err := s.holds(list(arg)[0])
			return !holds, err
		case "Fn::And", "Fn::Or":
			for _, part := range list(arg) {
				holds, err := s.holds(part)
				if err != nil || holds == (name == "Fn::Or") {
					return holds, err
				}
			}
			return name == "Fn::And", nil
		}
	}
	return false, fmt.Errorf("%v is no condition known here", v)
}
