package report_test

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bench/report"
	"github.com/cloudlease/cloudlease/bench/scene"
)

func committed(t *testing.T) report.Results {
	t.Helper()
	r, err := report.Load(filepath.Join("..", "results", "latest.json"))
	require.NoError(t, err)
	require.NotEmpty(t, r)
	return r
}

// TestCostPage: the tables of docs/cost.md are those of the committed results.
func TestCostPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "cost.md"))
	require.NoError(t, err)
	want, err := committed(t).Replace(string(page))
	require.NoError(t, err)
	require.Equal(t, want, string(page), "run make bench SCENARIO=none")
}

// TestCommittedFiles: tables and plots are those of the committed results.
func TestCommittedFiles(t *testing.T) {
	r := committed(t)
	page, err := os.ReadFile(filepath.Join("..", "results", "latest.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), r.Table(false))
	for name, want := range r.Plots() {
		have, err := os.ReadFile(filepath.Join("..", "results", name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(have), name)
	}
}

// TestLocksCostInProportion: 10,000 locks are priced as ten times 1,000, because 1,000 cost ten times what 100 do.
func TestLocksCostInProportion(t *testing.T) {
	r := committed(t)
	for _, s := range scene.Subjects() {
		hundred, ok := r.Get("held-100", s.Name, "per minute requests")
		// On Consul a session renews all its locks, and no request has a price. Peers that renew one lock after the other fall behind,
		// and the bare SDK renews all at once, which a window of two heartbeats can cut.
		if !ok || s.Store == scene.Consul || !strings.HasPrefix(s.Name, "cloudlease-") {
			continue
		}
		thousand, ok := r.Get("held-1000", s.Name, "per minute requests")
		require.True(t, ok, s.Name)
		require.InEpsilon(t, 10, thousand/hundred, 0.2, s.Name)
	}
}

func small() report.Results {
	return report.Results{
		{Scenario: "uncontended", Subject: "cloudlease-dynamodb", Metric: "requests", Unit: "requests", Value: 2},
		{Scenario: "uncontended", Subject: "cloudlease-dynamodb", Metric: "writes", Unit: "WU", Value: 2},
		{Scenario: "uncontended", Subject: "sdk-dynamodb", Metric: "requests", Unit: "requests", Value: 2},
		{Scenario: "uncontended", Subject: "dynamolock-go", Metric: "requests", Unit: "requests", Value: 3},
		{Scenario: "takeover", Subject: "cloudlease-dynamodb", Metric: "once time", Unit: "s", Value: 12},
		{Scenario: "takeover", Subject: "dynamolock-go", Metric: "once time", Unit: "s", Value: scene.Never},
		{Scenario: "held-1000", Subject: "cloudlease-dynamodb", Metric: "per minute requests", Unit: "requests", Value: 6000},
		{Scenario: "held-1000", Subject: "cloudlease-dynamodb", Metric: "per minute writes", Unit: "WU", Value: 6000},
	}
}

func TestTable(t *testing.T) {
	table := small().Table(true)
	require.Regexp(t, `acquire and release, requests +\| +2 \| +2 \| +3 \| +1 \| +0.67 \|`, table)
	require.Regexp(t, `each time anew, after +\| +12 s \| +- \| +never \| +\| +\|`, table)
	require.Regexp(t, `1,000 locks held, requests a minute +\| +6,000 \|`, table)
}

// TestMoney: a million runs of two writes cost 1.25 USD, and 1,000 locks of six writes a minute 162 USD a month.
func TestMoney(t *testing.T) {
	cost := small().Cost()
	require.Regexp(t, `cloudlease, DynamoDB +\| +1.25 \|`, cost)
	require.Regexp(t, `cloudlease, DynamoDB +\| +- \| +- \| +0.162 \| +1,620 \|`, cost)
}

func TestMergeReplacesWhatWasMeasuredAnew(t *testing.T) {
	fresh := report.Results{{Scenario: "uncontended", Subject: "cloudlease-dynamodb", Metric: "requests", Value: 4}}
	got := small().Merge(fresh)
	require.Len(t, got, len(small())-1)
	v, ok := got.Get("uncontended", "cloudlease-dynamodb", "requests")
	require.True(t, ok)
	require.InDelta(t, 4, v, 0)
	_, ok = got.Get("uncontended", "cloudlease-dynamodb", "writes")
	require.False(t, ok, "of a scenario and a subject all or nothing")
	_, ok = got.Get("uncontended", "dynamolock-go", "requests")
	require.True(t, ok)
}

func TestReplaceNeedsItsMarks(t *testing.T) {
	_, err := small().Replace("no marks")
	require.Error(t, err)
	page, err := small().Replace("a\n" + report.BlockBegin + "\nold\n" + report.BlockEnd + "\nb\n")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(page, "a\n"+report.BlockBegin))
	require.True(t, strings.HasSuffix(page, report.BlockEnd+"\nb\n"))
	require.NotContains(t, page, "old")
}

func TestPlotsAreXML(t *testing.T) {
	plots := small().Plots()
	require.Contains(t, plots, "overview.svg")
	for name, svg := range plots {
		d := xml.NewDecoder(strings.NewReader(string(svg)))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, name)
		}
	}
}
