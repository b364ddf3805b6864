// Package secret remembers what went over a campaign's wires and must not be in any log, and looks for it there. It is kept
// in memory alone.
package secret

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// shortest is the length of the shortest secret. What is shorter may be part of any word.
const shortest = 12

// Book has the secrets of one campaign. The zero value is ready, it is safe for concurrent use, and a nil one keeps nothing.
type Book struct {
	mu      sync.Mutex
	kinds   map[string]int               // how many secrets of a kind
	byStart map[string]map[string]string // the kind, by the secret's first bytes and the secret
}

// Add takes note of a secret. One that is too short to be told from a word is none.
func (b *Book) Add(kind, secret string) {
	if b == nil || len(secret) < shortest {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kinds == nil {
		b.kinds, b.byStart = map[string]int{}, map[string]map[string]string{}
	}
	start := secret[:shortest]
	if b.byStart[start] == nil {
		b.byStart[start] = map[string]string{}
	}
	if _, known := b.byStart[start][secret]; !known {
		b.byStart[start][secret] = kind
		b.kinds[kind]++
	}
}

// Counts tells how many secrets of each kind there are.
func (b *Book) Counts() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.kinds)
}

// String tells how many secrets of each kind there are, not what they are.
func (b *Book) String() string {
	counts := b.Counts()
	var words []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%s %d", kind, counts[kind]))
	}
	return strings.Join(words, ", ")
}

// In are the kinds of the secrets that text has, in order.
func (b *Book) In(text string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := map[string]bool{}
	for i := range len(text) - shortest + 1 {
		for secret, kind := range b.byStart[text[i:i+shortest]] {
			if len(text)-i >= len(secret) && text[i:i+len(secret)] == secret {
				found[kind] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Check looks for secrets in files and in other texts, by their names, and tells one line for each kind in each of them. It tells
// as well of kinds that are expected and were not seen: a search for nothing finds nothing.
func (b *Book) Check(expected, files []string, texts map[string]string) ([]string, error) {
	var wrong []string
	counts := b.Counts()
	for _, kind := range expected {
		if counts[kind] == 0 {
			wrong = append(wrong, fmt.Sprintf("no %s was seen on the wire: that none was logged says nothing", kind))
		}
	}
	look := func(name, text string) {
		for _, kind := range b.In(text) {
			wrong = append(wrong, fmt.Sprintf("a secret was logged: %s in %s", kind, name))
		}
	}
	if len(files)+len(texts) == 0 {
		return nil, errors.New("there is nothing to look for secrets in")
	}
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // a file of the campaign
		if err != nil {
			return nil, err
		}
		look(filepath.Base(file), string(text))
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		look(name, texts[name])
	}
	return wrong, nil
}
