package template

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Pattern is a filter pattern of CloudWatch Logs for JSON lines: { ... } around comparisons of fields with texts, by = and !=, with
// && and || (which bind as in Go) and parentheses. A * in a text stands for anything.
type Pattern struct {
	match func(fields map[string]any) bool
}

var patternToken = regexp.MustCompile(`^\s*(&&|\|\||!=|=|\(|\)|\$\.[A-Za-z_][A-Za-z0-9_]*|"[^"\\]*")`)

// ParsePattern reads a pattern. What it does not know, though CloudWatch may, is an error.
func ParsePattern(s string) (Pattern, error) {
	body := strings.TrimSpace(s)
	if !strings.HasPrefix(body, "{") || !strings.HasSuffix(body, "}") || len(body) > 1024 {
		return Pattern{}, fmt.Errorf("the pattern %q is not in braces, or longer than 1024 characters", s)
	}
	body = body[1 : len(body)-1]
	p := &parser{}
	for strings.TrimSpace(body) != "" {
		m := patternToken.FindStringSubmatch(body)
		if m == nil {
			return Pattern{}, fmt.Errorf("the pattern %q has something unknown at %q", s, body)
		}
		p.tokens = append(p.tokens, m[1])
		body = body[len(m[0]):]
	}
	match, err := p.any()
	if err == nil && p.peek() != "" {
		err = fmt.Errorf("there is %q too many", p.peek())
	}
	if err != nil {
		return Pattern{}, fmt.Errorf("the pattern %q: %w", s, err)
	}
	return Pattern{match}, nil
}

// Match tells whether a line of a log matches. One that is no JSON object does not.
func (p Pattern) Match(line string) bool {
	var fields map[string]any
	return json.Unmarshal([]byte(line), &fields) == nil && fields != nil && p.match(fields)
}

type matcher = func(fields map[string]any) bool

type parser struct{ tokens []string }

func (p *parser) peek() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

func (p *parser) take() string {
	t := p.peek()
	if t != "" {
		p.tokens = p.tokens[1:]
	}
	return t
}

// any is one or more alternatives.
func (p *parser) any() (matcher, error) {
	return p.chain("||", p.all, func(a, b bool) bool { return a || b })
}

// all is one or more comparisons that have to hold together.
func (p *parser) all() (matcher, error) {
	return p.chain("&&", p.one, func(a, b bool) bool { return a && b })
}

func (p *parser) chain(operator string, part func() (matcher, error), join func(a, b bool) bool) (matcher, error) {
	left, err := part()
	for err == nil && p.peek() == operator {
		p.take()
		var right matcher
		if right, err = part(); err == nil {
			before := left
			left = func(f map[string]any) bool { return join(before(f), right(f)) }
		}
	}
	return left, err
}

func (p *parser) one() (matcher, error) {
	t := p.take()
	if t == "(" {
		inner, err := p.any()
		if err == nil && p.take() != ")" {
			err = fmt.Errorf("a parenthesis is not closed")
		}
		return inner, err
	}
	operator, want := p.take(), p.take()
	if !strings.HasPrefix(t, "$.") || operator != "=" && operator != "!=" || !strings.HasPrefix(want, `"`) {
		return nil, fmt.Errorf(`%q %q %q is no comparison of a field with a text in quotes`, t, operator, want)
	}
	parts := strings.Split(strings.Trim(want, `"`), "*")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	re := regexp.MustCompile("(?s)^" + strings.Join(parts, ".*") + "$")
	return func(f map[string]any) bool {
		have, ok := f[t[2:]].(string)
		return ok && re.MatchString(have) == (operator == "=")
	}, nil
}
