package main

import "strings"

// check is one search of the model.
type check struct {
	name     string
	bounds   string // definitions for the model: its size and the part of the world that is switched on
	mistake  string // the definition that breaks the protocol, or asks whether a situation is reached; empty: as it is
	violates string // the property that has to fail; empty: all hold
}

// flags are the definitions, as Spin takes them.
func (c check) flags() []string {
	var flags []string
	for d := range strings.FieldsSeq(c.bounds + " " + c.mistake) {
		flags = append(flags, "-D"+d)
	}
	return flags
}

// Sizes that several checks use.
const (
	once  = "ATTEMPTS=1 RENEWALS=0 TRIES=1 "
	twice = "FIRST=2 ATTEMPTS=1 RENEWALS=0 TRIES=1 "
)

var checks = []check{
	{name: "renewals", bounds: "ATTEMPTS=1 RENEWALS=2 TRIES=1 END=6"},
	{name: "lost-answers", bounds: "ATTEMPTS=1 RENEWALS=0 TRIES=2 END=4 TTL=1 OLD_ITEM"},
	{name: "acquired-again", bounds: twice + "END=5 TTL=1 OLD_ITEM"},
	{name: "three-holders", bounds: once + "HOLDERS=3 END=4 TTL=1 OLD_ITEM"},
	{name: "fence", bounds: "ATTEMPTS=1 RENEWALS=1 TRIES=1 END=6 STORAGE OLD_ITEM"},
	{name: "free-in-time", bounds: "ATTEMPTS=1 FIRST_RENEWALS=1 RENEWALS=0 TRIES=1 END=7 TTL=1 LATENESS WIDE OLD_ITEM"},
	{name: "deletion", bounds: once + "END=6 TTL=1 DELETION"},
	{name: "deletion-and-fence", bounds: once + "END=5 TTL=1 DELETION STORAGE"},

	{name: "no-fence", bounds: once + "END=7 STORAGE OLD_ITEM", mistake: "NO_FENCE", violates: "fence_holds"},
	{name: "trust-from-answer", bounds: "ATTEMPTS=1 RENEWALS=1 TRIES=1 END=7", mistake: "TRUST_FROM_ANSWER", violates: "one_holder"},
	{name: "dead-without-skew", bounds: "ATTEMPTS=1 RENEWALS=1 TRIES=1 END=7", mistake: "DEAD_WITHOUT_SKEW", violates: "one_holder"},
	{name: "renew-lowers-end", bounds: "ATTEMPTS=1 RENEWALS=2 TRIES=1 END=7 OLD_ITEM", mistake: "RENEW_LOWERS", violates: "one_holder"},
	{name: "release-any", bounds: twice + "END=6 OLD_ITEM", mistake: "RELEASE_ANY", violates: "one_holder"},
	{name: "release-by-client", bounds: twice + "END=7", mistake: "RELEASE_BY_CLIENT", violates: "one_holder"},
	{name: "create-by-put", bounds: once + "END=7", mistake: "CREATE_BY_PUT", violates: "tokens_grow"},
	{
		name: "renew-creates", bounds: "FIRST=2 ATTEMPTS=1 RENEWALS=1 TRIES=1 END=5 TTL=1 DELETION", mistake: "RENEW_CREATES",
		violates: "tokens_grow",
	},
	{name: "write-without-clock", bounds: once + "END=12 LATENESS OLD_ITEM", mistake: "COLD_WRITE", violates: "free_in_time"},

	// The residues that docs/guarantees.md names.
	{name: "young-item-deleted", bounds: once + "END=7 DELETION", mistake: "RESIDUE_YOUNG", violates: "tokens_grow"},
	{name: "create-in-flight", bounds: once + "END=7 DELETION", mistake: "RESIDUE_LATE", violates: "tokens_grow"},

	// Situations that have to occur, or the properties would say nothing.
	{name: "dead-is-taken", bounds: once + "END=7", mistake: "REACHED=1", violates: "unreached"},
	{name: "own-try-found", bounds: "ATTEMPTS=1 RENEWALS=0 TRIES=2 END=5", mistake: "REACHED=2", violates: "unreached"},
	{name: "made-again", bounds: once + "END=5 TTL=1 DELETION", mistake: "REACHED=3", violates: "unreached"},
	{name: "stale-is-refused", bounds: once + "END=7 STORAGE", mistake: "REACHED=4", violates: "unreached"},
}
