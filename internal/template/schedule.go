package template

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// field is one field of a cron expression of EventBridge.
type field struct {
	name        string
	least, most int
	words       []string // other names of least, least+1, ...
	question    bool     // may be ?
	pattern     *regexp.Regexp
}

var cronFields = []field{
	{name: "minutes", most: 59},
	{name: "hours", most: 23},
	{name: "day of the month", least: 1, most: 31, question: true, pattern: regexp.MustCompile(`^(L|LW|L-\d+|\d+W)$`)},
	{name: "month", least: 1, most: 12, words: strings.Fields("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC")},
	{
		name: "day of the week", least: 1, most: 7, words: strings.Fields("SUN MON TUE WED THU FRI SAT"), question: true,
		pattern: regexp.MustCompile(`^(L|[1-7]L|[1-7]#[1-5])$`),
	},
	{name: "year", least: 1970, most: 2199},
}

var rate = regexp.MustCompile(`^rate\(([1-9][0-9]*) (minute|hour|day)(s?)\)$`)

// CheckSchedule tells what is wrong with a schedule expression, by the grammar of EventBridge Scheduler's documentation.
func CheckSchedule(expression string) error {
	if m := rate.FindStringSubmatch(expression); m != nil {
		if (m[1] == "1") == (m[3] == "s") {
			return fmt.Errorf("the schedule %q: one minute, two minutes", expression)
		}
		return nil
	}
	inner, ok := strings.CutPrefix(expression, "cron(")
	inner, closed := strings.CutSuffix(inner, ")")
	parts := strings.Fields(inner)
	if !ok || !closed || len(parts) != len(cronFields) {
		return fmt.Errorf("the schedule %q is neither rate(N minutes) nor cron() with six fields", expression)
	}
	for i, f := range cronFields {
		for one := range strings.SplitSeq(parts[i], ",") {
			if err := f.check(one); err != nil {
				return fmt.Errorf("the schedule %q: %s: %w", expression, f.name, err)
			}
		}
	}
	if (parts[2] == "?") == (parts[4] == "?") {
		return fmt.Errorf("the schedule %q: one of the day of the month and the day of the week is a question mark", expression)
	}
	return nil
}

func (f field) check(s string) error {
	if f.question && s == "?" || f.pattern != nil && f.pattern.MatchString(s) {
		return nil
	}
	span, step, stepped := strings.Cut(s, "/")
	if n, err := strconv.Atoi(step); stepped && (err != nil || n < 1) {
		return fmt.Errorf("%q is no step", s)
	}
	if span == "*" {
		return nil
	}
	from, to, ranged := strings.Cut(span, "-")
	a, err := f.number(from)
	if err != nil || !ranged {
		return err
	}
	b, err := f.number(to)
	if err == nil && b < a {
		err = fmt.Errorf("%q runs backwards", s)
	}
	return err
}

func (f field) number(s string) (int, error) {
	if i := slices.Index(f.words, s); i >= 0 {
		return f.least + i, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < f.least || n > f.most {
		return 0, fmt.Errorf("%q is not from %d to %d", s, f.least, f.most)
	}
	return n, nil
}
