// Package report turns figures into what people read: a table, plots, and money.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/cloudlease/cloudlease/bench/scene"
)

// Results are figures, looked up by scenario, subject and metric.
type Results []scene.Result

// Load reads results that were saved. A missing file is no results.
func Load(path string) (Results, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r Results
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return r, nil
}

// Save writes r in an order of its own, so that two files can be compared.
func (r Results) Save(path string) error {
	b := []byte("[\n")
	for i, x := range r.sorted() {
		line, err := json.Marshal(x)
		if err != nil {
			return err
		}
		if i > 0 {
			b = append(b, ",\n"...)
		}
		b = append(append(b, ' '), line...)
	}
	return os.WriteFile(path, append(b, "\n]\n"...), 0o644) //nolint:gosec // results are for everybody
}

// sorted keeps the order of the metrics within a scenario and a subject.
func (r Results) sorted() Results {
	subjects := scene.Subjects()
	place := func(x scene.Result) int {
		return slices.IndexFunc(subjects, func(s scene.Subject) bool { return s.Name == x.Subject })
	}
	out := slices.Clone(r)
	slices.SortStableFunc(out, func(a, b scene.Result) int {
		if a.Scenario != b.Scenario {
			return order(a.Scenario) - order(b.Scenario)
		}
		return place(a) - place(b)
	})
	return out
}

// scenarios are in the order of the tables.
var scenarios = []string{
	"uncontended", "renew", "failfast", "singleton", "takeover", "contend-2", "contend-20", "contend-100", "held-10", "held-100", "held-1000",
	"shards-10", "shards-100", "shards-1000", "shards-10000", "coldstart",
}

func order(scenario string) int { return slices.Index(scenarios, scenario) }

// Merge is r with what was measured anew in the place of what it had: of each scenario and subject all or nothing.
func (r Results) Merge(fresh Results) Results {
	type key struct{ scenario, subject string }
	anew := map[key]bool{}
	for _, x := range fresh {
		anew[key{x.Scenario, x.Subject}] = true
	}
	kept := slices.DeleteFunc(slices.Clone(r), func(x scene.Result) bool { return anew[key{x.Scenario, x.Subject}] })
	return append(kept, fresh...)
}

// Get looks a figure up.
func (r Results) Get(scenario, subject, metric string) (float64, bool) {
	for _, x := range r {
		if x.Scenario == scenario && x.Subject == subject && x.Metric == metric {
			return x.Value, true
		}
	}
	return 0, false
}
