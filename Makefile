# GNU make 4.3 or later, POSIX sh. `make` alone lists the targets.

.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

# FENCE=off runs the demonstration without its fence, to show what goes wrong then.
FENCE ?= on

# FOR is how long each fuzz target runs: a time, or a number of inputs such as 300x.
FOR ?= 10s

linter := .bin/golangci-lint
actionlint := .bin/actionlint
sbom := .bin/cyclonedx-gomod
vulncheck := .bin/govulncheck
engines := localstack/node_modules/.stamp
cloud := localstack/.venv/.stamp

# PYTHON is the interpreter that localstack/.venv is made with.
python = $(or $(PYTHON),python3)

# What is missing on this machine, empty when all is there. Evaluated only where a recipe uses it.
missing_go = $(shell go version 2>/dev/null | awk '{ split(substr($$3, 3), v, "."); ok = v[1] > 1 || v[2] >= 26 } \
	END { if (!ok) print "Go 1.26 or later;" }')
missing_cc = $(shell test "$$(go env CGO_ENABLED 2>/dev/null)" = 1 && command -v "$$(go env CC)" >/dev/null || \
	echo "a C compiler, for the race detector;")
missing_gcc = $(shell command -v "$${CC:-gcc}" >/dev/null || echo "gcc, or another C compiler named in CC;")
missing_node = $(shell node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null || \
	echo "Node.js 20 or later;")
missing_npm = $(shell npm --version >/dev/null 2>&1 || echo "npm;")
missing_python = $(shell $(python) -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	echo "Python 3.11 or later with venv (Debian: python3-venv; elsewhere set PYTHON to it);")
missing_postgres = $(shell PATH="$${CLOUDLEASE_POSTGRES:-$$PATH:$$(echo /usr/lib/postgresql/*/bin | tr ' ' :)}"; \
	command -v initdb >/dev/null && command -v postgres >/dev/null || \
	echo "PostgreSQL (Debian: postgresql; elsewhere set CLOUDLEASE_POSTGRES to the directory of initdb);")

# $(call need,tools) stops with one line if tools are missing.
need = $(if $(strip $(1)),$(error install $(strip $(1)) then run make again))

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: have-node have-go $(engines) $(cloud) ## Install what stands in for the cloud (Node.js, npm, Python needed; builds Consul once, 6 minutes)
	@go run ./internal/emulator/consulsetup >/dev/null

.PHONY: demo
demo: have-go ## Show a paused holder meeting the fence; FENCE=off shows it without (Go alone)
	@go run ./e2e/demo -fence=$(FENCE)

.PHONY: demo-shards
demo-shards: have-go ## Show workers that share the shards of a stream, one of them killed (Go alone)
	@go run ./e2e/demoshards

.PHONY: check
check: have-go ## Format, vet, build and tests in virtual time, on the embedded engine (Go alone)
	@unformatted=$$(find . -name node_modules -prune -o -name '*.go' -exec gofmt -l {} +) && \
		{ test -z "$$unformatted" || { echo "run gofmt -w on:" $$unformatted >&2; exit 1; }; }
	go vet ./...
	go build ./...
	go test -parallel 24 -skip '^TestInRealTime$$' ./... # the race detector and real time are make test's

.PHONY: test
test: have-race have-postgres setup ## All tests, on all engines (Node.js, npm and PostgreSQL needed)
	CLOUDLEASE_ENGINES=1 go test -race -count=1 -parallel 24 -timeout 10m ./...
	cd e2e/cloud && CLOUDLEASE_ENGINES=1 go test -race -count=1 -timeout 10m ./...

# What make torture plays: STORE=dynamodb, azblob or consul; SCENE=workers, beyond, restore or lambda; SEED=0: a new one.
STORE ?= dynamodb
SCENE ?= workers
SEED ?= 0
torture: FOR = 1m

.PHONY: torture
torture: have-go setup ## Real processes under random faults: STORE=dynamodb SEED=1 FOR=10m, SCENE=beyond
	@go run ./e2e/torture -scene $(SCENE) -store $(STORE) -seed $(SEED) -for $(FOR)

.PHONY: live
live: have-go ## The stores' specifications on the services themselves, in your account: LIVE=dynamodb,azblob,consul (internal/live/live.go)
	@: $(if $(LIVE),,$(error say which services, such as LIVE=dynamodb; internal/live/live.go tells what each needs))
	CLOUDLEASE_LIVE=$(LIVE) go test -count=1 -timeout 60m -run '^TestLive$$' -v ./dynamolock ./bloblease ./consullock

.PHONY: e2e
e2e: have-race setup ## The tests with real processes only, a short torture among them
	CLOUDLEASE_ENGINES=1 go test -race -count=1 -timeout 10m ./e2e/...

# PORTS=free takes free ports instead of those that people know.
.PHONY: up down logs
up: setup ## Start a stand-in of AWS, DynamoDB, Azure Storage and Consul in the background; PORTS=free
	@go run ./localstack/launcher up $(if $(filter free,$(PORTS)),-free)

down: have-go ## End it
	@go run ./localstack/launcher down

logs: ## Show the end of what it logs
	@tail -n 40 localstack/.run/logs/*.log

OCCURRENCES ?= 3

.PHONY: e2e-cloud
e2e-cloud: have-go ## Deploy template.yaml to what make up started, and let a schedule fire; OCCURRENCES=n
	@test -f localstack/.run/endpoints.env || { echo "run make up first" >&2; exit 1; }
	@set -a; . ./localstack/.run/endpoints.env; cd e2e/cloud && go run . -template ../../template.yaml -occurrences $(OCCURRENCES)

.PHONY: lint
lint: $(linter) $(actionlint) lint-template ## Check the code with golangci-lint, the deployment template with cfn-lint (Python)
	$(actionlint)
	$(linter) config verify
	$(linter) run ./...
	cd bench && ../$(linter) run ./...
	cd e2e/cloud && ../../$(linter) run ./...

# cfn-lint looks at the template and at what the SAM translator makes of it. Planted faults show that both are looked at.
.PHONY: lint-template
lint-template: have-go $(cloud)
	@mkdir -p dist
	localstack/.venv/bin/python internal/template/translate.py template.yaml >dist/template.json
	localstack/.venv/bin/cfn-lint --regions eu-west-1 us-east-1 --template template.yaml dist/template.json
	CLOUDLEASE_CFN_LINT=$(CURDIR)/localstack/.venv/bin/cfn-lint go test -count=1 ./internal/template

# PACKAGE=name simulates one store only; SEEDS are COUNT or FIRST:COUNT.
SEEDS ?= 200
stores = $(or $(PACKAGE),$(patsubst %/store.go,%,$(filter-out lease/store.go,$(wildcard */store.go))) memlease)

.PHONY: sim
sim: have-go ## Contention in bad weather, by chance and in virtual time; SEEDS=5000, PACKAGE=dynamolock, MUTANT=name or all
	@$(if $(MUTANT),go run ./internal/mutants -only $(MUTANT) -seeds $(SEEDS),\
		CLOUDLEASE_SEEDS=$(SEEDS) go test -count=1 -timeout 24h -run '^TestSimulation' -v $(addprefix ./,$(stores)))

.PHONY: sim-shards
sim-shards: have-go ## 10,000 shards and 200 workers in virtual time: the table of docs/shards.md (an hour at most)
	@go test -count=1 -timeout 60m -run TestSimulation -v ./internal/shardsim -args -full

.PHONY: spec
spec: have-spec ## Check the model of the protocol with Spin (Go, gcc; Spin or Debian)
	@go run ./spec

.PHONY: mutants
mutants: have-go ## Break the code on purpose and see the tests notice; ONLY=name for one
	go run ./internal/mutants $(if $(ONLY),-only $(ONLY))

# What make bench plays: SCENARIO=contend,takeover (prefixes) and PEERS=cloudlease-dynamodb,shedlock (subjects); empty: all.
.PHONY: bench
bench: have-go setup bench-java bench-node ## Cost and speed beside the bare SDKs and other libraries (Node.js, npm; JDK 17, Maven)
	@cd bench && go build -o ../.bin/bench . && ../.bin/bench -scenario "$(SCENARIO)" -peers "$(PEERS)"

# Peers in other languages. What cannot be built is left out, and make bench says so.
.PHONY: bench-java bench-node
bench-java:
	@command -v mvn >/dev/null && { cd bench/java && mvn -q -B -ntp process-classes; } || echo "the Java peers are not built: JDK 17 and Maven are needed" >&2
bench-node: have-node bench/node/node_modules/.stamp

bench/node/node_modules/.stamp: bench/node/package.json bench/node/package-lock.json bench/node/.npmrc
	cd bench/node && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

.PHONY: bench-guard
bench-guard: have-go ## Compare requests and allocations with bench/guard.json; UPDATE=1 writes it anew
	@cd bench && go test -count=1 $(if $(UPDATE),./guard -args -update,./...)

.PHONY: bench-go
bench-go: have-go ## Run the benchmarks in Go
	go test -bench . -benchmem -run '^$$' ./...

.PHONY: fuzz
fuzz: have-go ## Run every fuzz target, each for FOR=10s
	@set -e; grep -rEo --include='*_test.go' --exclude-dir=node_modules '^func Fuzz[A-Za-z0-9_]+' . | \
		while IFS=: read -r file func; do \
			echo "$${func#func } in $$(dirname "$$file"), for $(FOR)"; \
			go test -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(FOR) -fuzzminimizetime 100x "$$(dirname "$$file")"; \
		done

.PHONY: build
build: have-go ## Build what is deployed, into dist/: archives for AWS Lambda (arm64) and Azure (amd64), SHA256SUMS, the command
	@go run ./internal/dist
	@set -e; for arch in amd64 arm64; do \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch go build -trimpath -ldflags='-s -w' -o dist/cli/cloudlease-linux-$$arch ./cmd/cloudlease; \
	done

.PHONY: reproduce
reproduce: have-go ## Build the archives twice, in other places and without a cache, and compare their sums
	@go run ./internal/dist -check

.PHONY: vuln
vuln: have-go $(vulncheck) ## Look for known vulnerabilities that the code can reach (asks vuln.go.dev)
	@out=$$($(vulncheck) ./... 2>&1); code=$$?; echo "$$out"; \
	case "$$out" in *"fetching vulnerabilities"*) \
		echo "the vulnerability database, vuln.go.dev, could not be reached: nothing was checked" >&2;; \
	esac; exit $$code

# Made twice, the second time from binaries and archives that are built anew; the bills of materials only once.
.PHONY: release-dry-run
release-dry-run: have-go $(sbom) ## Make what a release consists of, into dist/release, twice and alike; publishes nothing
	$(MAKE) build
	go run ./internal/release -sbom $(abspath $(sbom))
	$(MAKE) build
	go run ./internal/release -out dist/release-again
	cd dist/release && sha256sum --quiet --check SHA256SUMS
	cd dist/release && sha256sum --quiet --check ../release-again/SHA256SUMS
	rm -rf dist/release-again

# Fuzzing by number, not by time: on a busy machine the end of a short time can come before the first input is through.
.PHONY: ci
ci: ## What has to pass before a change goes in
	$(MAKE) lint
	$(MAKE) demo
	$(MAKE) test
	$(MAKE) bench-guard
	$(MAKE) fuzz FOR=100x

.PHONY: clean
clean: ## Remove what these targets made
	@test ! -f localstack/.run/pid || { echo "run make down first" >&2; exit 1; }
	rm -rf .bin dist bench/java/target bench/node/node_modules localstack/node_modules localstack/.venv

.PHONY: have-go have-race have-node have-postgres have-python have-spec
have-go:
	@:$(call need,$(missing_go))
have-race:
	@:$(call need,$(missing_go) $(missing_cc))
have-spec:
	@:$(call need,$(missing_go) $(missing_gcc))
have-node:
	@:$(call need,$(missing_go) $(missing_node) $(missing_npm))
have-postgres:
	@:$(call need,$(missing_postgres))
have-python:
	@:$(call need,$(missing_python))

$(engines): localstack/package.json localstack/package-lock.json localstack/.npmrc
	cd localstack && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

# Wheels alone, so that nothing of the packages runs while they are installed; what is there of another version goes first.
$(cloud): localstack/requirements.txt | have-python
	rm -rf localstack/.venv
	$(python) -m venv localstack/.venv
	localstack/.venv/bin/pip install --quiet --require-hashes --only-binary :all: --no-deps -r localstack/requirements.txt
	@touch $@

# The linter is built from its own module, so that its two hundred dependencies stay out of go.mod.
$(linter): tools/go.mod tools/go.sum | have-go
	cd tools && go build -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

# The smaller tools, from a module of their own for the same reason.
$(actionlint): package = github.com/rhysd/actionlint/cmd/actionlint
$(sbom): package = github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
$(vulncheck): package = golang.org/x/vuln/cmd/govulncheck
$(actionlint) $(sbom) $(vulncheck): tools/ci/go.mod tools/ci/go.sum | have-go
	cd tools/ci && go build -o ../../$@ $(package)
	@touch $@
