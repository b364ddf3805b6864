package main

const unfair = "of fairness, which no history shows"

// waitMutants are those of the client's waiting.
var waitMutants = []mutant{
	{
		name: "wait-never-yields", what: "a client asks at once for a lock that it has just released, for ever",
		file: "lease/acquire.go", old: "last := c.yield(ctx, name)", new: "var last *HeldError",
		tests: "./lease", run: "Turns|Starved|GoFirst", unsought: unfair,
	},
	{
		name: "wait-goroutines-starve", what: "a client gives no turn to its own goroutines that wait",
		file: "lease/crowd.go", old: "\t\ts.vain = 0\n\t\treturn s, true", new: "\t\treturn s, false",
		tests: "./lease", run: "Turns", unsought: unfair,
	},
	{
		name: "wait-visitors-not-seen", what: "a client that has let others go first believes that nobody came",
		file: "lease/crowd.go", old: "c.alone = c.mine == last", new: "c.alone = true",
		tests: "./lease", run: "Turns", unsought: unfair,
	},
	{
		name: "wait-polite-beyond-the-deadline", what: "an Acquire of a free lock fails because it has let others go first",
		file: "lease/wait.go", old: "pause = min(pause, time.Until(end)/2)", new: "_ = end",
		tests: "./lease", run: "GoFirst", unsought: "a deadline that is shorter than the pause: TestNobodyIsLateBecauseOthersGoFirst",
	},
	{
		name: "wait-storm-at-the-end", what: "waiters whose holder's end is near, or past and not seen, look without a pause",
		file: "lease/pace.go", old: "max(end+Jitter(min(d, time.Second)/8, 1), nearPause)",
		new: "end+Jitter(min(d, time.Second)/8, 1)", tests: "./lease", run: "Storm|PauseEnds", unsought: "it breaks no guarantee",
	},
}
