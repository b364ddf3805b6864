package report

import (
	"fmt"
	"strings"

	"github.com/cloudlease/cloudlease/bench/scene"
)

// Prices in USD, as assumed for docs/cost.md.
const (
	pricesOf = "2025"

	writeUnit = 0.625 / 1e6 // DynamoDB on demand, us-east-1, since 1 November 2024
	readUnit  = 0.125 / 1e6

	blobWrite = 0.05 / 1e4 // Azure blob storage, general-purpose v2, hot, locally redundant, East US: an assumption
	blobRead  = 0.004 / 1e4
	blobList  = 0.05 / 1e4
	blobOther = 0.004 / 1e4

	lambdaGBSecond = 0.0000133334 // AWS Lambda on arm64, us-east-1
	lambdaMemory   = 0.125        // GB, the least
)

// monthMinutes is a month of 30 days.
const monthMinutes = 30 * 24 * 60

// usd is the price of one of something whose metrics begin with what.
func (r Results) usd(scenario, subject, what string) (float64, bool) {
	get := func(metric string) float64 {
		v, _ := r.Get(scenario, subject, what+metric) // what was not counted was not sent
		return v
	}
	_, ok := r.Get(scenario, subject, what+"requests")
	return get("reads")*readUnit + get("writes")*writeUnit + get("write operations")*blobWrite + get("read operations")*blobRead +
		get("list operations")*blobList + get("other operations")*blobOther, ok
}

// perMonth is what n locks ("held") or shards ("shards") cost for a month. Locks beyond what was counted cost in proportion:
// each is renewed by itself.
func (r Results) perMonth(kind string, n int, subject string) (float64, bool) {
	factor := 1.0
	if kind == "held" && n > 1000 {
		factor, n = float64(n)/1000, 1000
	}
	usd, ok := r.usd(fmt.Sprintf("%s-%d", kind, n), subject, "per minute ")
	return usd * factor * monthMinutes, ok
}

// The lines between which docs/cost.md is made by this package.
const (
	BlockBegin = "<!-- made by make bench: begin -->"
	BlockEnd   = "<!-- made by make bench: end -->"
)

// Cost is the block of docs/cost.md.
func (r Results) Cost() string {
	var b strings.Builder
	b.WriteString(BlockBegin + "\n\n")
	fmt.Fprintf(&b, "Prices: list prices of %s in USD. DynamoDB %s a million write units, %s a million read units. Azure %s a million write or\n"+
		"list operations, %s a million others. Lambda %s a GB-second.\n", pricesOf, trim(writeUnit*1e6, 3), trim(readUnit*1e6, 3), trim(blobWrite*1e6, 3),
		trim(blobOther*1e6, 3), trim(lambdaGBSecond, 10))
	section := func(title string, lines [][]string) {
		if len(lines) > 1 {
			b.WriteString("\n**" + title + "**\n\n" + markdown(lines))
		}
	}
	section("A million guarded runs** (acquire, a run shorter than a heartbeat, release), USD", r.runs())
	section("A lock that is held for a month** (TTL 30 s), USD", r.held())
	section("Shards for a month, four workers** (TTL 30 s, without checkpoints), USD", r.shards())
	section("Waiting in AWS Lambda** (128 MB, arm64): a million hand-overs among contenders that hold the lock for 100 ms, USD", r.waiting())
	b.WriteString("\n" + BlockEnd)
	return strings.ReplaceAll(b.String(), "USD**", "USD")
}

// money rounds to three digits that count.
func money(v float64, ok bool) string {
	switch {
	case !ok:
		return "-"
	case v == 0:
		return "0"
	case v < 0.01:
		return trim(v, 5)
	case v < 10:
		return trim(v, 3)
	}
	return trim(v, 0)
}

// billed are the subjects whose requests have a price.
func (r Results) billed() []scene.Subject {
	return append(r.subjects(scene.DynamoDB), r.subjects(scene.Azure)...)
}

func name(s scene.Subject) string {
	if s.Store == scene.Azure {
		return s.Label + ", Azure"
	}
	return s.Label + ", DynamoDB"
}

func (r Results) runs() [][]string {
	lines := [][]string{{"", "warm process", "a new process each", "scheduled, once per occurrence", "the same, delivered five times", "runs of it"}}
	for _, s := range r.billed() {
		warm, ok := r.usd("uncontended", s.Name, "")
		if !ok {
			continue
		}
		cold, coldOK := r.usd("uncontended", s.Name, "cold acquire ")
		release, _ := r.usd("uncontended", s.Name, "release ")
		run, runOK := r.usd("singleton", s.Name, "")
		five, fiveOK := r.usd("singleton", s.Name, "five deliveries ")
		runs, runsOK := r.Get("singleton", s.Name, "five deliveries runs")
		times := row{}.cell(runs, runsOK)
		lines = append(lines, []string{
			name(s), money(warm*1e6, true), money((cold+release)*1e6, coldOK), money(run*1e6, runOK), money(five*1e6, fiveOK), times,
		})
	}
	return lines
}

func (r Results) held() [][]string {
	lines := [][]string{{"", "one of 10", "one of 100", "one of 1,000", "10,000 together"}}
	for _, s := range r.billed() {
		line, some := []string{name(s)}, false
		for _, n := range []int{10, 100, 1000} {
			usd, ok := r.perMonth("held", n, s.Name)
			line, some = append(line, money(usd/float64(n), ok)), some || ok
		}
		all, ok := r.perMonth("held", 10000, s.Name)
		if some {
			lines = append(lines, append(line, money(all, ok)))
		}
	}
	return lines
}

func (r Results) shards() [][]string {
	lines := [][]string{{"", "10", "100", "1,000", "10,000"}}
	for _, s := range r.subjects(scene.DynamoDB) {
		line, some := []string{name(s)}, false
		for _, n := range []int{10, 100, 1000, 10000} {
			usd, ok := r.perMonth("shards", n, s.Name)
			line, some = append(line, money(usd, ok)), some || ok
		}
		if some {
			lines = append(lines, line)
		}
	}
	return lines
}

// waiting is what the requests of a hand-over cost, and the functions that wait meanwhile: all contenders but one, for the hold and
// the hand-over.
func (r Results) waiting() [][]string {
	lines := [][]string{{"", "20: requests", "20: time", "100: requests", "100: time"}}
	for _, s := range r.billed() {
		line, some := []string{name(s)}, false
		for _, n := range []int{20, 100} {
			scenario := fmt.Sprintf("contend-%d", n)
			usd, ok := r.usd(scenario, s.Name, "per hand-over ")
			ms, _ := r.Get(scenario, s.Name, "hand-over median")
			seconds := float64(n-1) * (ms + 100) / 1000
			line = append(line, money(usd*1e6, ok), money(seconds*lambdaMemory*lambdaGBSecond*1e6, ok))
			some = some || ok
		}
		if some {
			lines = append(lines, line)
		}
	}
	return lines
}

// Replace puts the block into a page, in the place of the one that it has.
func (r Results) Replace(page string) (string, error) {
	before, rest, begun := strings.Cut(page, BlockBegin)
	_, after, ended := strings.Cut(rest, BlockEnd)
	if !begun || !ended {
		return "", fmt.Errorf("the page has no block between %q and %q", BlockBegin, BlockEnd)
	}
	return before + r.Cost() + after, nil
}
