// Package scene measures lock libraries side by side: the same scenarios, the same engines, in one run, each client behind a meter
// of its own.
package scene

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cloudlease/cloudlease/bench/drive"
	"github.com/cloudlease/cloudlease/bench/meter"
	"github.com/cloudlease/cloudlease/bench/stat"
	"github.com/cloudlease/cloudlease/internal/emulator"
)

// Result is one figure.
type Result struct {
	Scenario string  `json:"scenario"`
	Subject  string  `json:"subject"`
	Metric   string  `json:"metric"`
	Unit     string  `json:"unit"`
	Value    float64 `json:"value"`
}

// World is where scenarios are played: the engines, and who takes part.
type World struct {
	dir      string
	say      func(format string, args ...any)
	subjects []Subject

	mu       sync.Mutex
	engines  map[string]*emulator.Engine
	results  []Result
	versions map[string]string
	made     int
}

// NewWorld makes a world without engines; each is started when it is needed. dir is the directory of this module.
func NewWorld(dir string, subjects []Subject, say func(format string, args ...any)) *World {
	return &World{dir: dir, subjects: subjects, say: say, engines: map[string]*emulator.Engine{}, versions: map[string]string{}}
}

// Close ends the engines.
func (w *World) Close() {
	for _, e := range w.engines {
		_ = e.Close() // nobody needs it any more
	}
}

// Results are the figures so far.
func (w *World) Results() []Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.results)
}

// Versions are what the drivers said they are, by subject.
func (w *World) Versions() map[string]string { return w.versions }

func (w *World) engine(ctx context.Context, store string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.engines[store]; e != nil {
		return e.URL, nil
	}
	var e *emulator.Engine
	var err error
	switch store {
	case DynamoDB:
		e, err = emulator.StartDynalite(ctx, emulator.Options{})
	case Azure:
		e, err = emulator.StartAzurite(ctx, emulator.AzuriteOptions{})
	case Consul:
		e, err = emulator.StartConsul(ctx, emulator.ConsulOptions{})
	}
	if err != nil {
		return "", err
	}
	w.engines[store] = e
	return e.URL, nil
}

// seat is a subject's place in a scenario: a meter, and a table, container or prefix of its own.
type seat struct {
	*meter.Meter
	w        *World
	s        Subject
	scenario string
	set      drive.Settings
	drivers  []*driver
}

// seat makes a place for a subject. ttl is stretched to what the store allows. Close it.
func (w *World) seat(ctx context.Context, scenario string, s Subject, ttl time.Duration) (*seat, error) {
	target, err := w.engine(ctx, s.Store)
	if err != nil {
		return nil, err
	}
	rule := map[string]func() meter.Rule{DynamoDB: meter.DynamoDB, Azure: meter.Azure, Consul: meter.Consul}[s.Store]()
	w.mu.Lock()
	w.made++
	table := fmt.Sprintf("bench-%d", w.made)
	w.mu.Unlock()
	switch s.Store {
	case DynamoDB:
		err = makeTable(ctx, target, table, s.Key)
	case Azure:
		err = makeContainer(ctx, target, table)
	}
	if err != nil {
		return nil, err
	}
	p := &seat{w: w, s: s, scenario: scenario, set: drive.Settings{Table: table, TTL: s.ttl(ttl)}}
	return p, p.meter(ctx, target, rule)
}

// meter puts a new meter between this place and the service.
func (p *seat) meter(ctx context.Context, target string, rule meter.Rule) error {
	m, err := meter.New(ctx, target, rule)
	if err != nil {
		return err
	}
	p.Meter, p.set.URL = m, m.URL()
	if p.s.Store == Azure {
		p.set.URL += "/" + emulator.AzuriteAccount
	}
	return nil
}

// holder is a driver in the same table whose requests are not counted here.
func (p *seat) holder(ctx context.Context) (*driver, error) {
	direct := *p
	target, err := p.w.engine(ctx, p.s.Store)
	if err != nil {
		return nil, err
	}
	direct.set.URL = target
	d, err := direct.driver(ctx)
	if err == nil {
		p.drivers = append(p.drivers, d)
	}
	return d, err
}

func makeTable(ctx context.Context, url, table, key string) error {
	return emulator.CreateTables(ctx, emulator.Client(url, nil), &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{{AttributeName: &key, KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &key, AttributeType: types.ScalarAttributeTypeS}},
	})
}

func makeContainer(ctx context.Context, url, name string) error {
	c, err := container.NewClientFromConnectionString(emulator.AzuriteConnection(url), name, nil)
	if err == nil {
		_, err = c.Create(ctx, nil)
	}
	return err
}

// driver starts a driver in this place.
func (p *seat) driver(ctx context.Context) (*driver, error) {
	cmd, err := p.s.command(ctx, p.w.dir, p.set)
	if err != nil {
		return nil, err
	}
	d, err := startDriver(ctx, p.s.Name, cmd)
	if err != nil {
		return nil, err
	}
	p.drivers = append(p.drivers, d)
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.versions[p.s.Name] = d.version
	return d, nil
}

// close ends the drivers and the meter.
func (p *seat) close() {
	for _, d := range p.drivers {
		d.kill()
	}
	_ = p.Close() // nobody needs it any more
}

// note keeps a figure.
func (p *seat) note(metric, unit string, value float64) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.results = append(p.w.results, Result{p.scenario, p.s.Name, metric, unit, value})
}

// noteCount keeps what n of something cost.
func (p *seat) noteCount(what string, c meter.Count, n float64) {
	p.note(what+"requests", "requests", float64(c.Requests)/n)
	switch p.s.Store {
	case DynamoDB:
		p.note(what+"reads", "RU", c.Reads/n)
		p.note(what+"writes", "WU", c.Writes/n)
	case Azure:
		for _, class := range []meter.Class{meter.WriteClass, meter.ReadClass, meter.ListClass, meter.OtherClass} {
			if c.Classes[class] > 0 {
				p.note(what+string(class)+" operations", "operations", float64(c.Classes[class])/n)
			}
		}
	}
	p.note(what+"bytes", "B", float64(c.Bytes)/n)
	for _, op := range slices.Sorted(maps.Keys(c.Ops)) {
		p.note(what+"of "+op, "requests", float64(c.Ops[op])/n)
	}
}

// noteTimes keeps the median and the 95th percentile, in milliseconds.
func (p *seat) noteTimes(what string, all []time.Duration) {
	if len(all) == 0 {
		return
	}
	p.note(what+"median", "ms", milliseconds(stat.Quantile(all, 0.5)))
	p.note(what+"p95", "ms", milliseconds(stat.Quantile(all, 0.95)))
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
