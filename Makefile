# Parley. `make help` lists the targets.
SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CACHE ?= $(CURDIR)/.cache
BIN   := $(CACHE)/bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# Pinned tools; each is built once into the cache.
GOLANGCI := $(BIN)/golangci-lint-v2.15.0
GOFUMPT  := $(BIN)/gofumpt-v0.12.0
DEADCODE := $(BIN)/deadcode-v0.50.0

MINUTES ?= 5
SEED    ?= 1
RUNS    ?= 5000

.PHONY: help run build test quick check bench chaos fuzz docs dist clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## build and start `parley dev` with the samples; Ctrl-C stops it
	@./bin/parley dev

build: ## build bin/parley, one static binary
	@command -v go >/dev/null || { echo "make: Go 1.26 is missing: https://go.dev/dl"; exit 1; }
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/parley ./cmd/parley

# SQLite is C translated to Go: with the race detector it costs most of the
# tests' time, and what it would find there is not ours.
test: ## every test, race detector on, PostgreSQL and Kafka included; last line: N passed, N failed, N skipped
	@scripts/need test
	@go run ./scripts/services go run ./scripts/testsum -race -gcflags=modernc.org/...=-race=false -shuffle=on -parallel 16 -timeout 40m ./... -- bench interop

quick: ## the tests that need no server, under a minute
	@go run ./scripts/testsum -short -timeout 2m ./...

check: $(GOLANGCI) $(GOFUMPT) $(DEADCODE) ## format, lint, vet, import policy, docs links, licences
	@scripts/check '$(GOLANGCI)' '$(GOFUMPT)' '$(DEADCODE)'

# Those of the benchmarks that need no server are run without any.
bench: ## the benchmarks; ONLY=name picks one, QUICK=1 ends within a minute each
	@$(if $(filter workflows jsonrpc a2a zone language jsonrpc-soak,$(ONLY)),,go run ./scripts/services -durable) \
		sh -c 'cd bench && exec go run . -only "$(ONLY)" $(if $(QUICK),-quick)'

chaos: ## random faults on one process and on a whole cluster: SEED=n MINUTES=m RUNS=n
	@CGO_ENABLED=1 go test -race -count=1 -timeout $$(($(MINUTES)+5))m -run TestCrash ./internal/server -crash.seed=$(SEED) -crash.minutes=$(MINUTES)
	@CGO_ENABLED=1 go test -race -count=1 -timeout 30m -run TestFailpointMatrix ./internal/server -server.matrix
	@CGO_ENABLED=1 go test -race -count=1 -v -timeout $$(($(MINUTES)+60))m -run 'TestChaos$$|TestScenarios|TestClocks' ./internal/chaos -chaos.seed=$(SEED) -chaos.minutes=$(MINUTES) -chaos.runs=$(RUNS)

fuzz: ## all fuzz targets and property tests in turn: MINUTES=m each
	@scripts/fuzz $(MINUTES)

docs: ## the documentation as a website of plain files, into dist/site
	@go run ./scripts/site

dist: ## release builds for linux and darwin into dist/
	@for p in linux/amd64 linux/arm64 darwin/arm64; do \
		GOOS=$${p%/*} GOARCH=$${p#*/} CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o dist/parley-$${p%/*}-$${p#*/} ./cmd/parley; \
		echo "dist/parley-$${p%/*}-$${p#*/}"; done

clean: ## remove what was built
	@rm -rf bin dist

$(GOLANGCI):
	@scripts/tool '$@' github.com/golangci/golangci-lint/v2/cmd/golangci-lint v2.15.0
$(GOFUMPT):
	@scripts/tool '$@' mvdan.cc/gofumpt v0.12.0
$(DEADCODE):
	@scripts/tool '$@' golang.org/x/tools/cmd/deadcode v0.50.0
