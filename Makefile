# What a developer does. Everything needs Go; build with NVML needs gcc as well.
BIN := bin
# go-nvml calls NVML functions that nvml.h calls deprecated; the compiler says so 29 times.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations
# Without grpc's traces for /debug/requests, which nothing here serves, the linker leaves out what
# only templates could call: a seventh of the binary.
export GOFLAGS := $(strip $(GOFLAGS) -tags=grpcnotrace)
SECONDS ?= 3600
SEED ?= 0
AGENTS ?= 1000,2500,5000,12500
PYTHON ?= $(or $(GOLAUNCH_TEST_PYTHON),python3)
RAY ?=
LINT := go tool -modfile=tools/lint/go.mod golangci-lint
BUF := go tool -modfile=tools/generate/go.mod buf

help:            ## print this
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t16

build:           ## bin/golaunch (NVML through go-nvml) and bin/golaunch-nocgo (NVML through purego, starts on any glibc)
	go build -trimpath -ldflags='-s -w -extldflags=-Wl,-z,lazy' -o $(BIN)/golaunch ./cmd/golaunch
	CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o $(BIN)/golaunch-nocgo ./cmd/golaunch

# What one goroutine does on values alone comes first, without the race detector: it is over within a minute. Then come other packages that
# are quick.
PURE := ./placement ./internal/core/jobstate ./internal/core/cluster ./internal/core/replica ./internal/core/goodput ./internal/core/capacity \
	./internal/core/lighthouse ./cmd/golaunch/internal/straggler ./cmd/golaunch/internal/fabric/pairtests ./internal/host/bind \
	./internal/process/fold ./internal/deptest ./internal/host/hostlist
# What takes longest begins first, so that nothing is left over when all others are done.
LONG := ./cmd/golaunch ./cmd/golaunch/internal/controller ./rendezvous ./rendezvous/tcpstore ./agent/internal/forkserver ./launcher/group ./launcher
QUICK := ./rankenv ./internal/wire/jsonout ./internal/core/snapshot ./nccl ./internal/wire/rpcframe ./launcher/internal/schedenv ./internal/process/postmortem ./launcher/internal/trainjob ./internal/host/topology ./internal/wire \
	./internal/testkit/suite ./cmd/golaunch/internal/units ./cmd/golaunch/internal/alert ./cmd/golaunch/internal/view
OTHERS = $(filter-out $(PURE:./%=github.com/golaunch/golaunch/%),$(shell go list ./...))
MUTANTS := ./internal/core/jobstate ./internal/core/cluster ./internal/wire/quorum ./cmd/golaunch/internal/fabric/pairtests ./rendezvous ./rendezvous/tcpstore
LIMIT ?= 40m
# Tests that start processes wait most of the time, so more of them run at once than there are cores.
CORES := $(shell nproc)
WIDE = -p $(shell expr $(CORES) + 1) -parallel $(shell expr 3 '*' $(CORES))
# Tests of values of many megabytes, through which the race detector takes more than a minute.
LARGEST := ^Test(Largest(|Submission|Cluster|Capacity)|LongestStatus|LongEntries|NewVotersAreCaughtUp|AFullQueueOfAVoter|AStatusThatIsNotRead|PositionsOfTheLargestJob)$$
# What pyenv has in the PATH are scripts, which start slowly: tests find python3 itself first.
PYENV = $(patsubst %/,%:,$(dir $(shell pyenv which python3 2>/dev/null)))
# Test binaries need no DWARF, and make lint vets them.
TESTFLAGS = -count=1 -timeout $(LIMIT) -vet=off -ldflags=-w

test:            ## every test, with the race detector where goroutines meet, against what make test-all has left in testdata
	go build -o $(BIN)/test ./tools/test
	PATH="$(PYENV)$$PATH" GORACE=atexit_sleep_ms=20 $(BIN)/test $(if $(GOLAUNCH_TEST_ALL),-race) $(TESTFLAGS) $(PURE) -- \
		$(if $(GOLAUNCH_TEST_ALL),-race) $(TESTFLAGS) -run '$(LARGEST)' ./rendezvous -- \
		-race $(TESTFLAGS) $(WIDE) -skip '$(LARGEST)' $(QUICK) $(LONG) $(OTHERS)
	cd tools/manifests && go test -count=1 ./...
	cd tools/dist && go vet . && go test -count=1 ./release
	cd tools/bench && go test -race $(TESTFLAGS) ./...

test-all:        ## make test with everything tried anew (every planted bug, torchrun, golaunch with the race detector), the packages under systemd, and a soak
	GOLAUNCH_TEST_ALL=1 $(MAKE) test LIMIT=2h
	cd tools/dist && go test -count=1 -timeout 40m .
	$(MAKE) soak SECONDS=300

record:          ## what make test compares with: torchrun's answers, with the torch of GOLAUNCH_TEST_PYTHON, and the worlds that find planted bugs
	go test -count=1 ./cmd/golaunch -run '^TestTorchCases$$' -record
	go test -count=1 $(MUTANTS) -run '^TestMutants$$' -record

record-ray:      ## what Ray (RAY, a bin directory with its python) prints for the programs of python/tests/ray_programs
	$(RAY)/python python/tests/record_ray.py

lint:            ## golangci-lint, which has go vet's checks; then the packages that differ without cgo
	$(LINT) run --allow-parallel-runners ./...
	CGO_ENABLED=0 go vet ./internal/host/gpu ./cmd/golaunch/internal/memlimit
	go vet ./cmd/golaunch/internal/memlimit
	cd tools/bench && go tool -modfile=../lint/go.mod golangci-lint run --allow-parallel-runners ./...
	cd tools/scale && go tool -modfile=../lint/go.mod golangci-lint run --allow-parallel-runners ./...

bench:           ## the Go benchmarks
	go test -run '^$$' -bench . -benchmem ./...

bench-peers:     ## golaunch against mpirun, srun, torchrun (of PYTHON) and Ray (RAY, a bin directory) on this machine, into docs/performance.md
	go run -C tools/bench . -python $(PYTHON) -ray '$(RAY)'
	go run -C tools/bench ./plot

bench-scale:     ## what clusters of 1,000 to 12,500 nodes cost their coordinator, and how long things take there; AGENTS has other sizes
	go run -C tools/scale . -agents $(AGENTS)

soak:            ## random faults into a real cluster of network namespaces, as root, for SECONDS (3600); SEED repeats one
	go test -tags soak -c -o $(BIN)/soak ./tools/soak
	cd tools/soak && exec $(abspath $(BIN))/soak -test.v -duration=$(SECONDS)s -seed=$(SEED)

gpu:             ## bin/golaunch-gpu.tar.gz: what a machine with an NVIDIA GPU and torch needs to try golaunch there (docs/gpu.md)
	$(MAKE) build
	rm -rf $(BIN)/golaunch-gpu && mkdir $(BIN)/golaunch-gpu
	cp $(BIN)/golaunch $(BIN)/golaunch-gpu/golaunch-cgo
	cp $(BIN)/golaunch-nocgo $(BIN)/golaunch-gpu/golaunch
	cp tools/gpu/prove.py examples/torch-ddp/train.py $(BIN)/golaunch-gpu/
	mkdir $(BIN)/golaunch-gpu/python && cp -r python/golaunch python/ray $(BIN)/golaunch-gpu/python/
	find $(BIN)/golaunch-gpu -name __pycache__ -prune -exec rm -r {} +
	tar -C $(BIN) -czf $(BIN)/golaunch-gpu.tar.gz golaunch-gpu

dist:            ## dist/: archives, deb, rpm, wheels, image, chart, SBOM and checksums of the commit that is checked out (docs/install.md)
	cd tools/dist && go run . -o $(abspath dist)

release:         ## tag this commit as VERSION once everything agrees and .ci/run test-all has passed, and make dist/
	cd tools/dist && go run ./release -version '$(VERSION)'

man:             ## bin/man: the manual pages
	mkdir -p $(BIN)/man
	go run -tags man ./cmd/golaunch _man $(BIN)/man

generate:        ## the gRPC code
	go generate ./internal/wire/rendezvouspb

.PHONY: help build test test-all record record-ray lint bench bench-peers bench-scale soak gpu dist release man generate
