package main

// consulMutants are those of consullock.
var consulMutants = []mutant{
	{
		name: "consul-token-of-lock-counter", what: "the token is the lock's own counter, which begins anew with its key",
		file: "consullock/grant.go", old: "token := lease.Token(granted.ModifyIndex + before.addAt(granted.ModifyIndex))",
		new: "token := lease.Token(locked.LockIndex + before.addAt(granted.ModifyIndex))", tests: "./consullock", run: "CO05",
		seed: 1,
	},
	{
		name: "consul-trust-from-the-answer", what: "trust counts from the end of a round",
		file: "consullock/round.go", old: "s.prove(r.proven, r.began)",
		new: "s.prove(r.proven, s.clock())", tests: "./consullock", run: "TestStore/TrustCounts",
		seed: 1,
	},
	{
		name: "consul-acquire-trusted-from-now", what: "a grant is trusted from its lock, not from its session's last renewal",
		file: "consullock/grant.go", old: `	now := a.clock()
	if now.Fast(a.Since)`,
		new: `	now := a.clock()
	sent = now
	if now.Fast(a.Since)`, tests: "./consullock", run: "TestGrant",
		seed: 1,
	},
	{
		name: "consul-session-proves-the-key", what: "a renewed session extends the trust in a key that does not look right",
		file: "consullock/round.go", old: `		passes := !concerns(refused, i)
`,
		new: `		passes := !concerns(refused, i) || t.hold != nil
`, tests: "./consullock", run: "TestC4",
		seed: 19,
	},
	{
		name: "consul-keys-alone-prove", what: "keys extend the trust although the session was not renewed",
		file: "consullock/round.go", old: `	if err == nil {
		err = r.seen
		s.prove(r.proven, r.began)
	}`,
		new: `	s.prove(r.proven, r.began)
	if err == nil {
		err = r.seen
	}`, tests: "./consullock", run: "Half",
		seed: 2,
	},
	{
		name: "consul-unlock-without-index", what: "a late unlock frees the session's next grant",
		file: "consullock/release.go", old: "ops := api.TxnOps{opUnchanged(path, r.index), opUnlock(path, r.session, freed)}",
		new: "ops := api.TxnOps{opTree(path), opUnlock(path, r.session, freed)}", tests: "./consullock", run: "TestC1_",
		seed: 9,
	},
	{
		name: "consul-value-overwritten", what: "a release without a value removes the one that is kept",
		file: "consullock/release.go", old: `		if r.f.Value != nil {
			kept.Value = r.f.Value
		}`,
		new: "\t\tkept.Value = r.f.Value", tests: "./consullock", run: "Released",
		seed: 1,
	},
	{
		name: "consul-late-save", what: "an earlier save that lands late overwrites a newer one",
		file: "consullock/hold.go", old: "opUnchanged(s.keptPath(g.Name), keptIndex), opSet",
		new: "opUnchanged(s.lockPath(g.Name), index+0*keptIndex), opSet", tests: "./consullock", run: "LateSave",
		seed: 1,
	},
	{
		name: "consul-re-entrant", what: "the store lets its own session in a second time",
		file: "consullock/acquire.go", old: "\tcase h.busy > 0 || h.granted && h.liveLocked(s.clock()):",
		new: `	case h.busy > 0 && h.Attempt == "":`, tests: "./consullock", run: "SameSession",
		seed: 1,
	},
	{
		name: "consul-nothing-swept", what: "a lock that landed after its caller gave up stays with the session",
		file: "consullock/round.go", old: "\t\t\t_ = s.freeStray(ctx, ses, t.name) // the next round tries again",
		new: "\t\t\t// the next round tries again", tests: "./consullock", run: "TestC3_LateLockIsSwept/virtual|TestLateSweep",
		seed: 3,
	},
	{
		name: "consul-session-left", what: "a closed store leaves its session",
		file: "consullock/session.go", old: `	return s.destroy(ctx, ses)
}

// endIfIdle`,
		new: `	return nil
}

// endIfIdle`, tests: "./consullock", run: "CO04",
		seed: 1,
	},
	{
		name: "consul-session-before-keys", what: "a session is destroyed with a key that it holds without a lease: a lock-delay follows",
		file: "consullock/session.go", old: "\t\t_ = s.freeStray(ctx, ses, name) // then it ends with the session",
		new: "\t\t_ = name", tests: "./consullock", run: "CloseFrees",
		unsought: "a lock-delay more: CloseFrees",
	},
	{
		name: "consul-floor-ignored", what: "a raised floor is not added",
		file: "consullock/record.go", old: `	return r.add.Add
}`,
		new: `	return 0
}`, tests: "./consullock", run: "Floor",
		seed: 5,
	},
	{
		name: "consul-fallen-token", what: "a token below the last is handed out",
		file: "consullock/grant.go", old: "\tcase token <= last && !retry:",
		new: `	case token <= last && !retry && a.Name == "":`, tests: "./consullock", run: "C7|DataLost",
		seed: 1,
	},
	{
		name: "consul-index-not-reset", what: "a waiter goes on with an index that the service has left behind",
		file: "consullock/wait.go", old: `	if meta.LastIndex < last {
		return pair, 0, nil
	}
	return pair, meta.LastIndex, nil`,
		new: "\treturn pair, max(meta.LastIndex, last), nil", tests: "./consullock", run: "CO06",
		unsought: "a waiter waits longer: CO06",
	},
	{
		name: "consul-stale-watch-believed", what: "an older answer passes for a loss",
		file: "consullock/round.go", old: `	if s.holdsIt(h, rec) {
		return nil // this round proves nothing; the next will
	}`,
		new: "\t_ = s.holdsIt", tests: "./consullock", run: "TestC8",
		seed: 1,
	},
	{
		name: "consul-destroyed-session-not-seen", what: "the end of a session is not told to those of its leases that are not watched",
		file: "consullock/wait.go", old: `				s.checkOthers(ctx, h.ses)
`,
		new: "", tests: "./consullock", run: "CO03_Destroyed",
		unsought: "a loss is told at the next renewal instead of at once: CO03_Destroyed",
	},
	{
		name: "consul-datacenters-mixed", what: "keys of another datacenter are taken for this one's",
		file: "consullock/grant.go", old: "before.by.Datacenter != a.dc:",
		new: `before.by.Datacenter == "":`, tests: "./consullock", run: "Mixed",
		unsought: "a mistake of the configuration: TestMixed and others",
	},
	{
		name: "consul-empty-for-denied", what: "what may not be read passes for what is not there",
		file: "consullock/look.go", old: "\tif len(pairs) == 0 {",
		new: "\tif len(pairs) < 0 {", tests: "./consullock", run: "CO07",
		unsought: "a permission that is missing: CO07",
	},
	{
		name: "consul-any-404-ends-the-session", what: "a renewal that finds no session ends it without another look",
		file: "consullock/round.go", old: "	case entry != nil:\n		return &lease.Error{",
		new: "	case entry == nil && false:\n		return &lease.Error{", tests: "./consullock", run: "FromThePast",
		seed: 2,
	},
	{
		name: "consul-fence-by-session", what: "a fence lets an older grant of the same session pass",
		file: "consullock/fence.go", old: "return api.TxnOps{opUnchanged(f.path, f.index), opCheckSession(f.path, f.session)}",
		new: "return api.TxnOps{opTree(f.path), opCheckSession(f.path, f.session)}", tests: "./consullock", run: "TestFence",
		seed: 2,
	},
	{
		name: "consul-guard-not-atomic", what: "the guard's check and its write are two steps",
		file: "consullock/guard.go", old: `	put.KV.Verb, put.KV.Index = api.KVCAS, index
`,
		new: `	_ = index
`, tests: "./consullock", run: "TestGuard/Check|TestGuard/Late",
		seed: 2,
	},
	{
		name: "consul-denied-leaves-a-session", what: "a denied lock leaves the session that was made for it",
		file: "consullock/acquire.go", old: `errors.Is(e.Class, lease.ErrDenied) {
		if left`,
		new: `errors.Is(e.Class, lease.ErrLost) {
		if left`, tests: "./consullock", run: "CO07",
		unsought: "a permission that is missing: CO07",
	},
	{
		name: "consul-given-back-over-another", what: "the give-back of a late attempt frees the key of the client's next lease",
		file: "consullock/release.go", old: "rec.note.Attempt != r.Attempt || s.another(r) {",
		new: "rec.note.Attempt != r.Attempt {", tests: "./consullock", run: "LateLockUnder|TestSimulation",
		seed: 22,
	},
	{
		name: "consul-freed-before-its-holder-knows", what: "a key is swept before the holder of its lost lease was told",
		file: "consullock/round.go", old: "h.loseLocked(rec.whyLost(), !rec.held() || rec.lock.Session != h.ses.id)",
		new: "h.loseLocked(rec.whyLost(), true)", tests: "./consullock", run: "LateLockUnder|TestSimulation",
		seed: 1,
	},
	{
		name: "consul-retry-not-told", what: "the trust that a retry was given is not kept, and the lease is swept while it is trusted",
		file: "consullock/grant.go", old: `	h.given = later(h.given, sent)
`,
		new: `	if !h.granted {
		h.given = sent
	}
`, tests: "./consullock", run: "RetryIsTrusted",
		seed: 1,
	},
}
