# GNU make 4.3 or later, POSIX sh. `make` alone lists the targets.

.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

# FENCE=off runs the demonstration without its fence, to show what goes wrong then.
FENCE ?= on

# FOR is how long each fuzz target runs.
FOR ?= 10s

# The functions that run on AWS Lambda.
lambdas := bloblease consullock dynamolock

linter := .bin/golangci-lint
engines := localstack/node_modules/.stamp

# What is missing on this machine, empty when all is there. Evaluated only where a recipe uses it.
missing_go = $(shell go version 2>/dev/null | awk '{ split(substr($$3, 3), v, "."); ok = v[1] > 1 || v[2] >= 26 } \
	END { if (!ok) print "Go 1.26 or later;" }')
missing_cc = $(shell test "$$(go env CGO_ENABLED 2>/dev/null)" = 1 && command -v "$$(go env CC)" >/dev/null || \
	echo "a C compiler, for the race detector;")
missing_gcc = $(shell command -v "$${CC:-gcc}" >/dev/null || echo "gcc, or another C compiler named in CC;")
missing_node = $(shell node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null || \
	echo "Node.js 20 or later;")
missing_npm = $(shell npm --version >/dev/null 2>&1 || echo "npm;")
missing_postgres = $(shell PATH="$${CLOUDLEASE_POSTGRES:-$$PATH:$$(echo /usr/lib/postgresql/*/bin | tr ' ' :)}"; \
	command -v initdb >/dev/null && command -v postgres >/dev/null || \
	echo "PostgreSQL (Debian: postgresql; elsewhere set CLOUDLEASE_POSTGRES to the directory of initdb);")

# $(call need,tools) stops with one line if tools are missing.
need = $(if $(strip $(1)),$(error install $(strip $(1)) then run make again))

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: have-node have-go $(engines) ## Install what stands in for the cloud (Node.js and npm needed; builds Consul once, 6 minutes)
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

# What make torture plays: STORE=dynamodb, azblob or consul; SCENE=workers, beyond, restore or lambda; SEED=0: a new one.
STORE ?= dynamodb
SCENE ?= workers
SEED ?= 0
torture: FOR = 1m

.PHONY: torture
torture: have-go setup ## Real processes under random faults: STORE=dynamodb SEED=1 FOR=10m, SCENE=beyond
	@go run ./e2e/torture -scene $(SCENE) -store $(STORE) -seed $(SEED) -for $(FOR)

.PHONY: e2e
e2e: have-race setup ## The tests with real processes only, a short torture among them
	CLOUDLEASE_ENGINES=1 go test -race -count=1 -timeout 10m ./e2e/...

.PHONY: lint
lint: $(linter) ## Check the code with golangci-lint
	$(linter) config verify
	$(linter) run ./...

# PACKAGE=name simulates one store only; SEEDS are COUNT or FIRST:COUNT.
SEEDS ?= 200
stores = $(or $(PACKAGE),$(patsubst %/store.go,%,$(filter-out lease/store.go,$(wildcard */store.go))) memlease)

.PHONY: sim
sim: have-go ## Contention in bad weather, by chance and in virtual time; SEEDS=5000, PACKAGE=dynamolock, MUTANT=name
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

.PHONY: bench
bench: have-go ## Run the benchmarks
	go test -bench . -benchmem -run '^$$' ./...

.PHONY: fuzz
fuzz: have-go ## Run every fuzz target, each for FOR=10s
	@set -e; grep -rEo --include='*_test.go' --exclude-dir=node_modules '^func Fuzz[A-Za-z0-9_]+' . | \
		while IFS=: read -r file func; do \
			echo "$${func#func } in $$(dirname "$$file"), for $(FOR)"; \
			go test -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(FOR) -fuzzminimizetime 100x "$$(dirname "$$file")"; \
		done

.PHONY: build
build: have-go ## Build what is deployed, into dist/: the Lambda functions (arm64), the Azure function app (amd64), the command
	@set -e; \
	build() { \
		arch=$$1; shift; \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch go build -trimpath -ldflags='-s -w' -o "$$out" "$$@"; \
		wc -c "$$out" | awk '{ printf "%-32s %5.1f MiB\n", $$2, $$1 / 1048576 }'; \
	}; \
	for name in $(lambdas); do \
		out=dist/$$name/bootstrap; \
		build arm64 -tags lambda.norpc "./functions/$$name"; \
	done; \
	rm -rf dist/azure; mkdir -p dist/azure; \
	cp -R functions/azure/host.json functions/azure/settlement dist/azure/; \
	out=dist/azure/azure; \
	build amd64 ./functions/azure; \
	for arch in amd64 arm64; do out=dist/cli/cloudlease-linux-$$arch; build $$arch ./cmd/cloudlease; done

.PHONY: ci
ci: ## What has to pass before a change goes in
	$(MAKE) lint
	$(MAKE) demo
	$(MAKE) test

.PHONY: clean
clean: ## Remove what these targets made
	rm -rf .bin dist localstack/node_modules

.PHONY: have-go have-race have-node have-postgres have-spec
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

$(engines): localstack/package.json localstack/package-lock.json localstack/.npmrc
	cd localstack && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

# The linter is built from its own module, so that its two hundred dependencies stay out of go.mod.
$(linter): tools/go.mod tools/go.sum | have-go
	cd tools && go build -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@
