package main

// azureMutants are those of bloblease.
var azureMutants = []mutant{
	{
		name: "azure-trust-from-the-answer", what: "trust counts from the answer of the lease",
		file: "bloblease/acquire.go", old: "Sent: a.sent,",
		new: "Sent: a.clock(),", tests: "./bloblease", run: "",
		seed: 1,
	},
	{
		name: "azure-answered-lease-not-checked", what: "a renewal believes that the lease it renewed is its own",
		file: "bloblease/hold.go", old: "!strings.EqualFold(answered, id)",
		new: "false && !strings.EqualFold(answered, id)", tests: "./bloblease", run: "",
		unsought: "only for what no client asks for does an engine answer so: TestLateRenewal",
	},
	{
		name: "azure-number-without-version", what: "the token is raised whatever has happened to the blob since the look",
		file: "bloblease/acquire.go", old: `SequenceNumber: new(int64(token)), AccessConditions: conditions("", seen),`,
		new: `SequenceNumber: new(int64(token)), AccessConditions: conditions("", seen[:0]),`, tests: "./bloblease", run: "",
		seed: 1,
	},
	{
		name: "azure-lease-without-version", what: "the lease is asked for on whatever version the blob has",
		file: "bloblease/acquire.go", old: "ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &etag},",
		new: "ModifiedAccessConditions: map[bool]*blob.ModifiedAccessConditions{true: {IfMatch: &etag}}[false],", tests: "./bloblease", run: "",
		seed: 5,
	},
	{
		name: "azure-lease-id-without-token", what: "the id of a lease does not depend on its token",
		file: "bloblease/acquire.go", old: "uint64(token), 10)",
		new: "0*uint64(token), 10)", tests: "./bloblease", run: "",
		unsought: "the claim's version refuses the same late requests",
	},
	{
		name: "azure-seed-without-lead", what: "a new blob's token is not ahead of all front ends' clocks",
		file: "bloblease/acquire.go", old: "latest.Add(creationLead).UnixMilli()",
		new: "latest.UnixMilli()", tests: "./bloblease", run: "",
		seed: 1,
	},
	{
		name: "azure-token-by-counting-alone", what: "a token is the last one plus one, so that an older copy repeats tokens",
		file: "bloblease/acquire.go", old: "max(rec.token+1, lease.Token(earliest.UnixMilli()))",
		new: "max(rec.token+1, min(1, lease.Token(earliest.UnixMilli())))", tests: "./bloblease", run: "",
		seed: 1,
	},
	{
		name: "azure-slow-claim-believed", what: "a claim that took longer than a lease resets the marks of a run",
		file: "bloblease/acquire.go", old: "if rec.pending() && a.clock().Fast(rec.looked) >= MinTTL {",
		new: "if false {", tests: "./bloblease", run: "",
		unsought: "within one request another's claim would have to be leased and that lease to end, which 60 seeds have not met: TestSlowClaimOverAClaim",
	},
	{
		name: "azure-retry-is-another", what: "a retry of an acquire takes its own first try for another holder",
		file: "bloblease/acquire.go", old: "if c, ok := s.claimed(r); ok {",
		new: "if c, ok := s.claimed(r); ok && c.token == 0 {", tests: "./bloblease", run: "",
		seed: 1,
	},
	{
		name: "azure-renewal-past-the-deadline", what: "a renewal is sent when the trust is over, and the service accepts it",
		file: "bloblease/hold.go", old: "if sent.Fast(g.Sent) >= g.Trust {",
		new: "if false && sent.Fast(g.Sent) >= g.Trust {", tests: "./bloblease", run: "",
		unsought: "no client asks for it, and what it brings back nobody has taken: TestLateRenewal",
	},
	{
		name: "azure-late-save", what: "a Save that arrives late brings an old value back",
		file: "bloblease/hold.go", old: "conditions(leaseID(g.Attempt, g.Token), rec.etag))",
		new: `conditions(leaseID(g.Attempt, g.Token), ""))`, tests: "./bloblease", run: "",
		seed: 1,
	},
	{
		name: "azure-late-release-overwrites", what: "a release writes over what came after it",
		file: "bloblease/hold.go", old: `annotate(ctx, g.Name, n, conditions("", rec.etag))`,
		new: "annotate(ctx, g.Name, n, nil)", tests: "./bloblease", run: "",
		seed: 51,
	},
	{
		name: "azure-break-without-version", what: "a forced release ends whatever lease there is",
		file: "bloblease/operate.go", old: "{IfMatch: &rec.etag},",
		new: "{},", tests: "./bloblease", run: "",
		seed: 3,
	},
	{
		name: "azure-gateways-clock", what: "the Date of an answer that is not the service's goes into tokens",
		file: "bloblease/store.go", old: `raw.Header.Get("X-Ms-Request-Id") != "" &&`,
		new: "true &&", tests: "./bloblease", run: "",
		seed: 24,
	},
	{
		name: "azure-native-without-number", what: "the native fence goes by the lease alone",
		file: "bloblease/native.go", old: "new(int64(g.Token)),",
		new: "new(int64(lease.MaxToken)),", tests: "./bloblease", run: "",
		unsought: "the lease's id depends on the token and refuses the same writes",
	},
	{
		name: "azure-guard-without-version", what: "a guard's write does not depend on what it compared",
		file: "bloblease/fence.go", old: "{IfMatch: &seen}",
		new: "{}", tests: "./bloblease", run: "",
		seed: 1,
	},
}
