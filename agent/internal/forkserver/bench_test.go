package forkserver

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/process/proc"
)

// BenchmarkFork starts a program that does nothing from a server. The server has imported the
// modules in GOLAUNCH_BENCH_MODULES (names separated by commas) with GOLAUNCH_BENCH_PYTHON. One
// operation is one start, without the program's own time.
func BenchmarkFork(b *testing.B) {
	b.Run("at the start", func(b *testing.B) { benchFork(b, false) })
	b.Run("ahead", func(b *testing.B) { benchFork(b, true) })
}

func benchFork(b *testing.B, ahead bool) {
	s, err := proc.New(proc.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	sc, err := s.Scope("bench")
	if err != nil {
		b.Fatal(err)
	}
	server, argv := benchServer(b, sc)
	var own int
	for b.Loop() {
		if ahead {
			b.StopTimer()
			before := children(b)
			if err := sc.Ahead(server, nil); err != nil {
				b.Fatal(err)
			}
			own = ownMemory(b, waiting(b, before...)[0])
			b.StartTimer()
		}
		p, err := sc.Start(proc.Command{Path: argv[0], Args: argv, Env: os.Environ(), Forker: server, ForkOnly: true})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if !p.Exit().OK() {
			b.Fatalf("%+v", p.Exit())
		}
		b.StartTimer()
	}
	if ahead {
		b.ReportMetric(float64(own), "kB/waiting")
	}
}

// ownMemory returns the memory that a process does not share, in kB: private pages and page tables.
func ownMemory(b *testing.B, pid int) (kilobytes int) {
	b.Helper()
	for file, prefixes := range map[string][]string{"smaps_rollup": {"Private_Dirty:", "Private_Clean:"}, "status": {"VmPTE:"}} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 3 && slices.Contains(prefixes, f[0]) {
				n, err := strconv.Atoi(f[1])
				if err != nil {
					b.Fatal(err)
				}
				kilobytes += n
			}
		}
	}
	return kilobytes
}

func benchServer(b *testing.B, sc *proc.Scope) (*Server, []string) {
	b.Helper()
	argv := []string{cmp.Or(os.Getenv("GOLAUNCH_BENCH_PYTHON"), "/usr/bin/python3"), "-c", "pass"}
	p, err := Parse(argv)
	if err != nil {
		b.Fatal(err)
	}
	conn, stdin, err := Pair()
	if err != nil {
		b.Fatal(err)
	}
	args := Argv(p, "benchmark")
	_, err = sc.Start(proc.Command{Path: args[0], Args: args, Env: os.Environ(), Stdin: stdin, Stderr: os.Stderr, Serves: true})
	_ = stdin.Close()
	if err != nil {
		b.Fatal(err)
	}
	modules := strings.FieldsFunc(os.Getenv("GOLAUNCH_BENCH_MODULES"), func(r rune) bool { return r == ',' })
	server, err := Greet(context.Background(), conn, p, Modules{Names: modules}, os.Environ())
	if err != nil {
		b.Fatal(err)
	}
	return server, argv
}
