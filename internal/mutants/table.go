package main

const (
	virtualStores = "./memlease ./dynamolock"
	virtualTests  = "TestStore$|TestGuard$|TestFloors|Token|Dead|Ends|Fenced|Check"
)

// mutants are the ways in which this code could be wrong that the tests are known to find.
var mutants = []mutant{
	{
		name: "trust-from-the-answer", what: "trust counts from the answer, not from before the request",
		file: "dynamolock/hold.go", old: "g.Sent, g.Trust = sent, s.trust(sent, expires, g.TTL)",
		new: "_, sent = sent, s.clock(); g.Sent, g.Trust = sent, g.TTL", tests: "./dynamolock", run: virtualTests,
		seed: 1,
	},
	{
		name: "trust-ignores-the-services-clock", what: "a holder trusts a full TTL, however uncertain the service's clock",
		file: "dynamolock/acquire.go", old: "return min(ttl, time.UnixMilli(expires).Sub(latest))",
		new: "_ = latest; return ttl", tests: "./dynamolock", run: "",
		seed: 1,
	},
	{
		name: "token-resets-on-deletion", what: "a record that is made again begins at the early side of the clock",
		file: "dynamolock/acquire.go", old: "latest, _ := a.time.Latest(w.now)",
		new: "latest, _ := a.time.Earliest(w.now); latest = latest.Add(-time.Hour)", tests: "./dynamolock", run: "",
		seed: 1,
	},
	{
		name: "token-by-counting-alone", what: "a token is the last one plus one, so that a restored table repeats tokens",
		file: "dynamolock/acquire.go", old: "version: max(seen+1, lease.Token(t))", new: "version: max(seen, 1) + 1",
		tests: "./dynamolock", run: "",
		seed: 1,
	},
	{
		name: "steal-without-skew", what: "a lease is dead at its end, though front ends may differ by a second",
		file: "dynamolock/expiry.go", old: "return earliest.After(time.UnixMilli(rec.expires).Add(servertime.Skew))",
		new: "_ = earliest; return latest.After(time.UnixMilli(rec.expires))", tests: "./dynamolock", run: "",
		seed: 1,
	},
	{
		name: "steal-by-the-wall-clock", what: "a contender's own wall clock decides that a lease is dead",
		file: "dynamolock/expiry.go", old: "return earliest.After(time.UnixMilli(rec.expires).Add(servertime.Skew))",
		new: "_ = earliest; return now.Wall.After(time.UnixMilli(rec.expires))", tests: "./dynamolock", run: "TestStore$",
		seed: 1,
	},
	{
		name: "observation-over-a-freeze", what: "a record is watched by the faster clock, which runs on over a freeze",
		file: "dynamolock/expiry.go", old: "return now.Slow(sight.since) > watchFor(rec)",
		new: "return now.Fast(sight.since) > watchFor(rec)", tests: "./dynamolock", run: "",
		seed: 8,
	},
	{
		name: "foreign-end-believed", what: "an end that no client can have written keeps a lock for ever",
		file: "dynamolock/expiry.go", old: "return !time.UnixMilli(rec.expires).After(latest.Add(ttl + servertime.Skew))",
		new: "_ = ttl; return true", tests: "./dynamolock", run: "",
		seed: 1,
	},
	{
		name: "end-moves-back", what: "a delayed older renewal shortens a newer one",
		file: "dynamolock/hold.go", old: `renewWhen  = "#v = :v AND #h = :h AND #e <= :e"`,
		new: `renewWhen  = "#v = :v AND #h = :h AND (#e <= :e OR #e > :e)"`, tests: "./dynamolock", run: "",
		seed: 1,
	},
	{
		name: "renewal-re-creates", what: "a renewal makes the item again that somebody deleted",
		file: "dynamolock/hold.go", old: `renewWhen  = "#v = :v AND #h = :h AND #e <= :e"`,
		new: `renewWhen  = "attribute_not_exists(#v) OR (#v = :v AND #h = :h AND #e <= :e)"`, tests: "./dynamolock", run: "",
		seed: 1,
	},
	{
		name: "release-by-name", what: "a release does not ask whose the lock is",
		file: "dynamolock/hold.go", old: `condition: "#h = :h",`, new: `condition: "(#h = :h OR #h <> :h)",`,
		tests: "./dynamolock", run: "TestStore$|Mute",
		seed: 1,
	},
	{
		name: "release-without-token", what: "a release goes by the holder alone and is not recognized when it is repeated",
		file: "dynamolock/hold.go", old: "case rec.free() && !rec.absent() && rec.nonce == g.Attempt:",
		new: "case false:", tests: "./dynamolock", run: "",
		seed: 5,
	},
	{
		name: "own-attempt-not-known", what: "a retry of an acquire takes its own first try for another holder",
		file: "dynamolock/acquire.go", old: "if !rec.free() && rec.holder == holderOf(a.Request) {",
		new: "if false {", tests: "./dynamolock", run: virtualTests,
		seed: 1,
	},
	{
		name: "own-attempt-trusted-from-now", what: "a grant found by a retry is trusted from the retry, not from its first send",
		file: "memlease/memlease.go", old: "return s.grant(r, rec, r.Since), nil", new: "return s.grant(r, rec, sent), nil",
		tests: "./memlease", run: "TestStore$",
		seed: 4,
	},
	{
		name: "stale-read", what: "a read that decides is not strongly consistent",
		file: "dynamolock/store.go", old: "TableName: &s.table, Key: keyOf(key), ConsistentRead: aws.Bool(true),",
		new: "TableName: &s.table, Key: keyOf(key), ConsistentRead: aws.Bool(false),", tests: "./dynamolock", run: "",
		seed: 1,
	},
	{
		name: "equal-token-accepted", what: "a guard lets another holder pass with an equal token",
		file: "dynamolock/fence.go", old: `#f < :t OR (#f = :t AND #h = :h)"`, new: `#f <= :t OR (#f = :t AND #h = :h)"`,
		tests: "./dynamolock", run: "TestGuard$",
		seed: 1,
	},
	{
		name: "lower-token-accepted", what: "the fence of a user's own write only looks whether there is one",
		file: "dynamolock/condition.go", old: `"(attribute_not_exists(#cl_fence) OR #cl_fence < :cl_token OR " +`,
		new: `"(attribute_not_exists(#cl_fence) OR #cl_fence <> :cl_token OR " +`, tests: "./dynamolock", run: "Fence",
		seed: 8,
	},
	{
		name: "check-by-version-alone", what: "the check on the lock's item passes after a release",
		file: "dynamolock/condition.go", old: `ConditionExpression:       aws.String("#v = :v AND #h = :h"),`,
		new: `ConditionExpression:       aws.String("#v = :v AND (#h = :h OR #h <> :h)"),`, tests: "./dynamolock", run: "CheckOnTheLock",
		seed: 1,
	},
	{
		name: "break-by-name", what: "a forced release ends whatever grant there is, not the inspected one",
		file: "dynamolock/operate.go", old: `condition := "#v = :v AND #h <> :free"`,
		new: `condition := "(#v = :v OR #v <> :v) AND #h <> :free"`, tests: "./dynamolock", run: "GE02",
		seed: 1,
	},
	{
		name: "signature-in-errors", what: "an error repeats what was signed, the session token included",
		file: "dynamolock/errors.go", old: `var secretive = map[string]bool{"InvalidSignatureException": true, "IncompleteSignature": true}`,
		new: `var secretive = map[string]bool{}`, tests: "./dynamolock", run: "TestErrorClasses",
		unsought: "a secret in an error, which chance does not make: TestErrorClasses",
	},
	{
		name: "monotonic-clock-alone", what: "trust ends by the monotonic clock, which stands still in a suspended machine",
		file: "lease/clock.go", old: "return max(r.Mono-since.Mono, r.Wall.Sub(since.Wall))",
		new: "return r.Mono - since.Mono", tests: "./memlease", run: "TestStore$",
		seed: 1,
	},
	{
		name: "late-success-revives", what: "a renewal that succeeds after the deadline makes the lease valid again",
		file: "lease/keep.go", old: "	l.check(now)\n	l.mu.Lock()\n	defer l.mu.Unlock()\n	if l.cause != nil {\n		return\n	}\n	old := l.grant",
		new: "	l.mu.Lock()\n	defer l.mu.Unlock()\n	l.cause = nil\n	old := l.grant", tests: "./memlease ./lease",
		unsought: "the client's: a loss cancels the renewal that is under way, so that the two would have to come at one instant",
	},
	{
		name: "heartbeat-survives-release", what: "renewals go on after the release",
		file: "lease/lease.go", old: "	l.beat.Stop()\n", new: "", old2: "	l.stop()\n	return true", new2: "	return true",
		tests: "./memlease ./lease",
		seed:  1,
	},
	{
		name: "first-failure-loses", what: "a lease is given up at the first renewal that fails",
		file: "lease/keep.go", old: "	case errors.Is(err, ErrLost):\n		l.lose(Gone, err)\n		return 0, false",
		new: "	case err != nil:\n		l.lose(Gone, err)\n		return 0, false", tests: "./memlease", run: "TestStore$",
		seed: 1,
	},
	{
		name: "abandoned-acquire-kept", what: "an acquire whose caller has gone keeps the lock for a TTL",
		file: "lease/acquire.go", old: "			c.giveBack(Grant{Request: r})\n", new: "", tests: "./memlease ./lease",
		seed: 1,
	},
	{
		name: "late-grant-handed-out", what: "a grant whose trust is over when it arrives is handed out",
		file: "lease/acquire.go", old: "if l.remaining(c.clock()) <= 0 {", new: "if false {", tests: "./memlease ./lease",
		seed: 44,
	},
	{
		name: "grant-of-a-new-attempt", what: "a retry of an acquire is a new attempt",
		file: "lease/acquire.go", old: "		g, err := c.acquireOnce(ctx, r)\n", new: "		r.Attempt = newID()\n		g, err := c.acquireOnce(ctx, r)\n",
		tests: "./memlease", run: "TestStore$",
		seed: 1,
	},
	{
		name: "clock-not-widened", what: "the interval of the service's clock forgets that a Date is up to a second old",
		file: "internal/servertime/clock.go", old: "cut = time.Second", new: "cut = time.Millisecond",
		tests: "./internal/servertime",
		seed:  1,
	},
	{
		name: "date-of-a-gateway", what: "the Date of an answer that is not DynamoDB's is taken for the service's clock",
		file: "dynamolock/errors.go", old: ` || resp.Response.Header.Get("X-Amzn-Requestid") == ""`, new: "",
		tests: "./dynamolock", run: "Gateway",
		seed: 14,
	},
	{
		name: "late-save-wins", what: "a Save that arrives late brings an old value back",
		file: "dynamolock/hold.go", old: "end = max(end, g.Expires.UnixMilli()+1, last+1)", new: "_ = last",
		old2: `saveWhen   = "#v = :v AND #h = :h AND #e < :e"`, new2: `saveWhen   = "#v = :v AND #h = :h AND #e <= :e"`,
		tests: "./dynamolock", run: "LateSave",
		seed: 2,
	},
	{
		name: "marks-of-the-dead-ignored", what: "a dead lock that was seen before is taken without a look at its marks",
		file: "dynamolock/acquire.go", old: " && !r.Mark.Refuses(sight.rec.marks)", new: "", tests: "./dynamolock", run: "TestStore$",
		seed: 2,
	},
	{
		name: "finished-on-failure", what: "a failed run marks its occurrence as finished",
		file: "singleton/body.go", old: "if e.Outcome == Ran && !r.opt.EveryOccurrence {", new: "if !r.opt.EveryOccurrence {",
		tests:    "./singleton",
		unsought: "of a recipe, not of a store",
	},
	{
		name: "in-doubt-reported-as-done", what: "a run that was started and has no end counts as done",
		file: "singleton/run.go", old: "	case m.Finished == occ:", new: "	case m.Finished == occ || m.Started == occ:",
		tests:    "./singleton",
		unsought: "of a recipe, not of a store",
	},
}
