package report

import (
	"fmt"

	"github.com/cloudlease/cloudlease/bench/scene"
)

// Plots are the plots, by file name. One without results is left out.
func (r Results) Plots() map[string][]byte {
	all := map[string][]byte{}
	add := func(name, title, about string, panels ...panel) {
		for _, p := range panels {
			if len(p.bars) > 0 {
				all[name] = draw(title, about, panels)
				return
			}
		}
	}
	const db, az, co = scene.DynamoDB, scene.Azure, scene.Consul
	add("overview.svg", "Locks on DynamoDB, side by side", "Bars for requests, take-over times and contention, one per library.",
		r.panel(db, "uncontended", "requests", "acquire and release: requests"),
		r.panel(db, "singleton", "five deliveries runs", "an occurrence delivered five times: runs"),
		r.panel(db, "takeover", "late time", "holder died, lease over: a newcomer waits"),
		r.panel(db, "takeover", "once time", "holder killed: one that tries every 2 s has it after"),
		r.panel(db, "contend-20", "per hand-over requests", "20 contenders: requests per hand-over"),
		r.panel(db, "shards-1000", "per minute requests", "1,000 shards, 4 workers: requests a minute"),
	)
	var contention []panel
	for _, n := range []int{2, 20, 100} {
		scenario := fmt.Sprintf("contend-%d", n)
		contention = append(contention,
			r.panel(db, scenario, "per hand-over requests", fmt.Sprintf("%d contenders: requests per hand-over", n)),
			r.panel(db, scenario, "hand-over median", fmt.Sprintf("%d contenders: time of a hand-over, median", n)))
	}
	add("contention-dynamodb.svg", "Contenders that hold a lock for 100 ms, on DynamoDB", "Bars for 2, 20 and 100 contenders.", contention...)
	contention = nil
	for _, n := range []int{2, 20, 100} {
		scenario := fmt.Sprintf("contend-%d", n)
		for _, st := range []struct{ id, name string }{{co, "Consul"}, {az, "Azure"}} {
			contention = append(contention,
				r.panel(st.id, scenario, "per hand-over requests", fmt.Sprintf("%s, %d contenders: requests per hand-over", st.name, n)),
				r.panel(st.id, scenario, "hand-over median", fmt.Sprintf("%s, %d contenders: time of a hand-over, median", st.name, n)))
		}
	}
	add("contention-others.svg", "Contenders that hold a lock for 100 ms, on Consul and Azure", "Bars for 2, 20 and 100 contenders.", contention...)
	var takeover []panel
	for _, st := range []struct{ id, name string }{{db, "DynamoDB, TTL 10 s"}, {az, "Azure, TTL 15 s"}, {co, "Consul, TTL 10 s"}} {
		takeover = append(takeover,
			r.panel(st.id, "takeover", "waiting time", st.name+": a waiter has it after"),
			r.panel(st.id, "takeover", "late time", st.name+": a newcomer, after the end, waits"),
			r.panel(st.id, "takeover", "once time", st.name+": one that tries every 2 s"))
	}
	add("takeover.svg", "The holder was killed", "Bars for the time until somebody else has the lock.", takeover...)
	if curves := r.curves(); len(curves) > 0 {
		all["cost.svg"] = drawCurves("What holding costs on DynamoDB, a month", "Lines over the number of locks or shards.", "locks or shards held",
			"USD a month, TTL 30 s, both axes logarithmic", curves)
	}
	return all
}

// curves are the costs of locks and of shards over their number.
func (r Results) curves() []curve {
	var all []curve
	for _, c := range []struct{ subject, kind, label, color, dash string }{
		{"cloudlease-dynamodb", "held", "locks, cloudlease", "#0068a8", ""},
		{"dynamolock-go", "held", "locks, dynamolock (Go)", "#d08a4a", "5 3"},
		{"cloudlease-dynamodb", "shards", "shards, cloudlease", "#00795a", ""},
		{scene.KCL, "shards", "shards, KCL 2.x (model)", "#b23b0a", "5 3"},
	} {
		var points [][2]float64
		for _, n := range []int{10, 100, 1000, 10000} {
			if usd, ok := r.perMonth(c.kind, n, c.subject); ok {
				points = append(points, [2]float64{float64(n), usd})
			}
		}
		if len(points) > 1 {
			all = append(all, curve{c.label, c.color, c.dash, points})
		}
	}
	return all
}
