package template

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Template is a template as it is written, with intrinsic functions in their long form.
type Template struct {
	Text string // the file

	root map[string]any
}

// Load reads a template from a file.
func Load(path string) (*Template, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(string(b))
}

// Parse reads a template.
func Parse(text string) (*Template, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return nil, fmt.Errorf("read the template: %w", err)
	}
	if len(doc.Content) != 1 {
		return nil, fmt.Errorf("read the template: it has %d documents", len(doc.Content))
	}
	v, err := value(doc.Content[0])
	if err != nil {
		return nil, fmt.Errorf("read the template: %w", err)
	}
	root, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("read the template: it is no mapping")
	}
	return &Template{Text: text, root: root}, nil
}

// value is what a node says: strings, numbers, bools, []any and map[string]any. Short forms become long ones.
func value(n *yaml.Node) (any, error) {
	plain, err := content(n)
	if err != nil || !strings.HasPrefix(n.Tag, "!") || strings.HasPrefix(n.Tag, "!!") {
		return plain, err
	}
	switch name := n.Tag[1:]; name {
	case "Ref", "Condition":
		return map[string]any{name: plain}, nil
	case "GetAtt":
		resource, attribute, _ := strings.Cut(fmt.Sprint(plain), ".")
		return map[string]any{"Fn::GetAtt": []any{resource, attribute}}, nil
	default:
		return map[string]any{"Fn::" + name: plain}, nil
	}
}

func content(n *yaml.Node) (any, error) {
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if _, twice := m[key]; twice {
				return nil, fmt.Errorf("line %d: the key %s is there twice", n.Content[i].Line, key)
			}
			v, err := value(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			m[key] = v
		}
		return m, nil
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, c := range n.Content {
			v, err := value(c)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case yaml.ScalarNode:
		if strings.HasPrefix(n.Tag, "!") && !strings.HasPrefix(n.Tag, "!!") {
			return n.Value, nil
		}
		var v any
		err := n.Decode(&v)
		return v, err
	case yaml.AliasNode, yaml.DocumentNode:
	}
	return nil, fmt.Errorf("line %d: CloudFormation knows no aliases", n.Line)
}

// section is a part of the template, empty where it is missing.
func (t *Template) section(name string) map[string]any {
	m, _ := t.root[name].(map[string]any)
	return m
}

// at is what a path of keys leads to in nested mappings, nil where it leads nowhere.
func at(v any, path ...string) any {
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

func text(v any, path ...string) string {
	s, _ := at(v, path...).(string)
	return s
}

func list(v any, path ...string) []any {
	switch v := at(v, path...).(type) {
	case nil:
		return nil
	case []any:
		return v
	default:
		return []any{v}
	}
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
