package report

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// preface stands above the tables.
const preface = `# Side by side

Made by ` + "`make bench`" + `; what stands for what, and how far to trust it, is in [the README](../README.md). Requests are counted. Times are of emulators
on the loopback address of a machine that may have been doing other work ("loaded"): compare orders of magnitude. "-": has no such thing, or was not measured. "never", "none": not while it was waited for (two leases and more; 10 to 20 s).

`

// afterword is below the tables.
const afterword = `"To bare SDK" and "to best peer" divide this project's figure by that one. The same in short, for people who do not read tables:
[overview](overview.svg), [contention on DynamoDB](contention-dynamodb.svg) and [elsewhere](contention-others.svg),
[take-over](takeover.svg), [cost of holding](cost.svg).
`

// Publish writes everything that is made of r: the tables, the plots, and the block of docs/cost.md. dir is the directory of this
// module.
func (r Results) Publish(dir string) error {
	results := filepath.Join(dir, "results")
	files := map[string][]byte{filepath.Join(results, "latest.md"): []byte(preface + "## In short\n\n" + r.Table(true) + "## All of it\n\n" + r.Table(false) + afterword)}
	for name, svg := range r.Plots() {
		files[filepath.Join(results, name)] = svg
	}
	page := filepath.Join(dir, "..", "docs", "cost.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	fresh, err := r.Replace(string(text))
	if err != nil {
		return err
	}
	files[page] = []byte(fresh)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := os.WriteFile(name, files[name], 0o644); err != nil { //nolint:gosec // they are for everybody
			return err
		}
	}
	return nil
}
