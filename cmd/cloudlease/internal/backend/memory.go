package backend

import (
	"context"

	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/memlease"
)

// memory is a store inside this process. No other process sees it, so that it is good for trying out commands only.
type memory struct{}

func newMemory(p place) (Backend, error) {
	if p.Host != "" || p.Path != "" {
		return nil, invalid("the store mem:// has no name: it lives and ends with the process")
	}
	return memory{}, p.only()
}

func (memory) URL() string { return "mem://" }

func (memory) Shared() bool { return false }

func (memory) Open(context.Context) (lease.Store, error) { return memlease.New(), nil }

func (memory) Check(ctx context.Context, report func(Item)) {
	report(Item{
		Check: "place", Status: Warn, Found: "locks in the memory of one process exclude nobody else",
		Fix: "use a store that others see: dynamodb://, azblob:// or consul://",
	})
	round(ctx, memlease.New(), report)
}

func (memory) Init(_ context.Context, o InitOptions) (string, error) {
	if o != (InitOptions{}) {
		return "", invalid("mem:// has no options")
	}
	return "nothing to make: it is in memory", nil
}

func (m memory) Document(form string) (string, error) { return "", noSuchForm(m, form) }

func (memory) Forms() []string { return nil }
