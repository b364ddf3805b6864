package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// permitted are the licenses that a linked module may have. MPL-2.0 binds its own files alone; nothing that binds the whole program
// is here. BSD-Source-Code is what the detector takes the BSD-3-Clause of golang.org/x for.
var permitted = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD-Source-Code", "ISC", "MIT", "MPL-2.0"}

// known are licenses that the detector does not find, read by a person.
var known = map[string]string{
	"github.com/hashicorp/go-metrics": "MIT",
	"std":                             "BSD-3-Clause",
}

// bills writes a bill of materials for every program, and looks at the licenses in it.
func (r release) bills(ctx context.Context, all []program, version string) error {
	faults := make([]error, len(all))
	counts := make([]map[string]int, len(all))
	slots := make(chan struct{}, runtime.NumCPU())
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			path := filepath.Join(r.out, p.name+".cdx.json")
			if faults[i] = r.bill(ctx, p, path, version); faults[i] == nil {
				counts[i], faults[i] = licenses(path)
			}
		})
	}
	wg.Wait()
	total := map[string]int{}
	for _, c := range counts {
		for name, n := range c {
			total[name] = max(total[name], n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(total)) {
		_, _ = fmt.Fprintf(r.says, "  %-16s in up to %d modules of a program\n", name, total[name]) // the files are what counts
	}
	return errors.Join(faults...)
}

// bill runs the tool. It reads the module cache and asks nobody.
func (r release) bill(ctx context.Context, p program, path, version string) error {
	cmd := exec.CommandContext(ctx, r.sbom, "bin", "-json", "-licenses", "-std", "-noserial", "-notimestamp", "-version", version, "-output", path, p.path)
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the bill of materials of %s: %w\n%s", p.name, err, out)
	}
	return nil
}

// licenses counts the licenses in a bill, and refuses what is not permitted.
func licenses(path string) (map[string]int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	type choices []struct{ License struct{ ID, Name string } }
	var bill struct {
		Components []struct {
			Name     string
			Licenses choices
			Evidence struct{ Licenses choices }
		}
	}
	if err := json.Unmarshal(b, &bill); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(bill.Components) == 0 {
		return nil, fmt.Errorf("%s names no modules", path)
	}
	count := map[string]int{}
	var faults []error
	for _, c := range bill.Components {
		var has []string
		for _, l := range slices.Concat(c.Licenses, c.Evidence.Licenses) {
			has = append(has, l.License.ID+l.License.Name)
		}
		if len(has) == 0 && known[c.Name] != "" {
			has = []string{known[c.Name]}
		}
		if len(has) == 0 {
			faults = append(faults, fmt.Errorf("%s: no license is known of %s; read it, and add it to internal/release/licenses.go", filepath.Base(path), c.Name))
		}
		for _, l := range has {
			count[l]++
			if !slices.Contains(permitted, l) {
				faults = append(faults, fmt.Errorf("%s: %s is under %s, which is not permitted", filepath.Base(path), c.Name, l))
			}
		}
	}
	return count, errors.Join(faults...)
}

// notice is the name of a file that a license wants to go along.
var notice = regexp.MustCompile(`(?i)^(licen[sc]e|copying|notice|patents)`)

// licenseTexts are the licenses and notices of all modules that are linked into any program, and of Go itself.
func licenseTexts(ctx context.Context, all []program) ([]byte, error) {
	versions := map[string]string{}
	for _, p := range all {
		for _, m := range p.info.Deps {
			if m.Replace != nil {
				return nil, fmt.Errorf("%s replaces %s: its license would be another's", p.name, m.Path)
			}
			versions[m.Path] = m.Version
		}
	}
	modules := slices.Sorted(maps.Keys(versions))
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-m", "-f", "{{.Dir}}"}, modules...)...)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("find the modules: %w", err)
	}
	dirs := strings.Split(strings.TrimSpace(string(out)), "\n")
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	text := bytes.NewBufferString("What is linked into these programs, beside their own code, and under which terms.\n")
	for i, m := range append(modules, "the Go standard library") {
		title, dir := m+" "+versions[m], strings.TrimSpace(string(root))
		if i < len(modules) {
			dir = dirs[i]
		}
		if err := appendNotices(text, strings.TrimSpace(title), dir); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

func appendNotices(text *bytes.Buffer, title, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		if e.IsDir() || !notice.MatchString(e.Name()) {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(text, "\n======== %s: %s\n\n%s\n", title, e.Name(), bytes.TrimSpace(b))
		found = true
	}
	if !found {
		return fmt.Errorf("%s has no license in %s", title, dir)
	}
	return nil
}
