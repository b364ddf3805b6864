package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cloudlease/cloudlease/bench/scene"
)

// row is a line of the tables.
type row struct {
	scenario, metric string
	what             string // what a reader calls it
	unit             string // behind the numbers, if it is not in what
	digits           int
	short            bool // also in the short table
	more             bool // more is better
}

var rows = []row{
	{"uncontended", "requests", "acquire and release, requests", "", 2, true, false},
	{"uncontended", "reads", "... read units", "", 2, false, false},
	{"uncontended", "writes", "... write units", "", 2, false, false},
	{"uncontended", "median", "... time, median", " ms", 1, false, false},
	{"uncontended", "p95", "... time, 95 %", " ms", 1, false, false},
	{"uncontended", "cpu", "... processor time", " ms", 2, false, false},
	{"uncontended", "bytes", "... bytes in bodies", "", 0, false, false},
	{"uncontended", "cold acquire requests", "first acquire of a process, requests", "", 0, true, false},
	{"renew", "requests", "renewal, requests", "", 2, false, false},
	{"failfast", "requests", "held lock, another attempt, requests", "", 2, true, false},
	{"failfast", "cold requests", "held lock, first attempt, requests", "", 0, false, false},
	{"failfast", "cold time", "held lock, first attempt, time", " ms", 0, false, false},
	{"takeover", "ttl", "TTL in the next three", " s", 0, false, false},
	{"takeover", "waiting time", "holder killed: a waiter has the lock after", " s", 1, true, false},
	{"takeover", "late time", "... one that comes after the end, after", " s", 1, true, false},
	{"takeover", "once time", "... one that tries every 2 s, each time anew, after", " s", 1, true, false},
	{"takeover", "waiting requests", "... requests of the waiter", "", 0, false, false},
	{"takeover", "late requests", "... of the one that comes late", "", 0, false, false},
	{"contend-2", "per hand-over requests", "2 contenders, requests per hand-over", "", 1, false, false},
	{"contend-2", "hand-over median", "... time, median", " ms", 0, false, false},
	{"contend-2", "hand-over p95", "... time, 95 %", " ms", 0, false, false},
	{"contend-20", "per hand-over requests", "20 contenders, requests per hand-over", "", 1, true, false},
	{"contend-20", "hand-over median", "... time, median", " ms", 0, true, false},
	{"contend-20", "hand-over p95", "... time, 95 %", " ms", 0, false, false},
	{"contend-20", "fairness", "... fairness (Jain, 1 is best)", "", 2, false, true},
	{"contend-100", "per hand-over requests", "100 contenders, requests per hand-over", "", 1, true, false},
	{"contend-100", "hand-over median", "... time, median", " ms", 0, true, false},
	{"contend-100", "hand-over p95", "... time, 95 %", " ms", 0, false, false},
	{"contend-100", "fairness", "... fairness (Jain, 1 is best)", "", 2, false, true},
	{"held-10", "per minute requests", "10 locks held, requests a minute", "", 0, false, false},
	{"held-100", "per minute requests", "100 locks held, requests a minute", "", 0, false, false},
	{"held-1000", "per minute requests", "1,000 locks held, requests a minute", "", 0, true, false},
	{"held-1000", "per minute cpu", "... processor time a minute", " ms", 0, false, false},
	{"held-1000", "memory", "... memory of the process", " MiB", 0, false, false},
	{"singleton", "requests", "a run of a scheduled occurrence, requests", "", 2, false, false},
	{"singleton", "five deliveries runs", "an occurrence delivered five times: runs", "", 0, true, false},
	{"singleton", "five deliveries requests", "... requests", "", 0, true, false},
	{"shards-1000", "per minute requests", "1,000 shards, 4 workers, requests a minute", "", 0, true, false},
	{"shards-10000", "per minute requests", "10,000 shards, 4 workers, requests a minute", "", 0, false, false},
	{"coldstart", "to first poll median", "Lambda: start to first poll", " ms", 1, false, false},
	{"coldstart", "to first lock median", "... to the first lock", " ms", 1, false, false},
	{"coldstart", "size", "... binary", " MiB", 1, false, false},
}

// stores are the tables' order and headings.
var stores = []struct{ id, title string }{{scene.DynamoDB, "DynamoDB"}, {scene.Azure, "Azure Blob Storage"}, {scene.Consul, "Consul"}}

// kcl is the model beside the libraries that run.
var kcl = scene.Subject{Name: scene.KCL, Label: "KCL 2.x (model)", Store: scene.DynamoDB, Kind: scene.Peer}

// Subjects are those of a store that have results, in order.
func (r Results) subjects(store string) []scene.Subject {
	return slices.DeleteFunc(append(scene.Subjects(), kcl), func(s scene.Subject) bool {
		return s.Store != store || !slices.ContainsFunc(r, func(x scene.Result) bool { return x.Subject == s.Name })
	})
}

// Table is everything in Markdown, one table per store; short: the rows for a README.
func (r Results) Table(short bool) string {
	var b strings.Builder
	for _, st := range stores {
		subjects := r.subjects(st.id)
		if len(subjects) == 0 {
			continue
		}
		lines := [][]string{heading(st.title, subjects)}
		for _, w := range rows {
			if short && !w.short {
				continue
			}
			if line, some := r.line(w, subjects); some {
				lines = append(lines, line)
			}
		}
		b.WriteString(markdown(lines))
		b.WriteString("\n")
	}
	return b.String()
}

func heading(title string, subjects []scene.Subject) []string {
	line := []string{title}
	for _, s := range subjects {
		line = append(line, s.Label)
	}
	return append(line, "to bare SDK", "to best peer")
}

func (r Results) line(w row, subjects []scene.Subject) (line []string, some bool) {
	line = []string{w.what}
	ours, floor, best := math.NaN(), math.NaN(), math.NaN()
	for _, s := range subjects {
		v, ok := r.Get(w.scenario, s.Name, w.metric)
		line = append(line, w.cell(v, ok))
		if !ok {
			continue
		}
		some = true
		switch {
		case v == scene.Never:
		case s.Kind == scene.Ours:
			ours = v
		case s.Kind == scene.Floor:
			floor = v
		case math.IsNaN(best) || v < best != w.more:
			best = v
		}
	}
	if w.metric == "ttl" {
		floor, best = math.NaN(), math.NaN()
	}
	return append(line, w.ratio(ours, floor), w.ratio(ours, best)), some
}

func (w row) cell(v float64, ok bool) string {
	switch {
	case !ok:
		return "-"
	case v == scene.Never && strings.HasSuffix(w.metric, "time"):
		return "never"
	case v == scene.Never && strings.HasSuffix(w.metric, "median"):
		return "none"
	}
	return trim(v, w.digits) + w.unit
}

// trim writes v with at most so many digits after the point, and thousands apart.
func trim(v float64, digits int) string {
	s := fmt.Sprintf("%.*f", digits, v)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	whole, rest, _ := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if rest != "" {
		whole += "." + rest
	}
	return whole
}

// ratio is a to b, where that says something: between two waits of less than a second it does not.
func (w row) ratio(a, b float64) string {
	if math.IsNaN(a) || math.IsNaN(b) || b == 0 || w.unit == " s" && a < 1 && b < 1 {
		return ""
	}
	return trim(a/b, 2)
}

// markdown aligns a table, so that it can be read as it is.
func markdown(lines [][]string) string {
	width := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			width[i] = max(width[i], len(cell))
		}
	}
	var b strings.Builder
	for n, line := range lines {
		for i, cell := range line {
			pad := strings.Repeat(" ", width[i]-len(cell))
			if i == 0 {
				b.WriteString("| " + cell + pad + " |")
			} else {
				b.WriteString(" " + pad + cell + " |")
			}
		}
		b.WriteString("\n")
		if n == 0 {
			for i := range line {
				if i == 0 {
					b.WriteString("|" + strings.Repeat("-", width[i]+2) + "|")
				} else {
					b.WriteString(strings.Repeat("-", width[i]+1) + ":|")
				}
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}
