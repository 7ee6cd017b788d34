package forkserver

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/process/proc"
)

// BenchmarkFork starts a program that does nothing, by a server that has imported the modules of
// GOLAUNCH_BENCH_MODULES (names with commas between); one operation is one start, without the
// program's own time.
func BenchmarkFork(b *testing.B) {
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
	for b.Loop() {
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
}

func benchServer(b *testing.B, sc *proc.Scope) (*Server, []string) {
	b.Helper()
	argv := []string{"/usr/bin/python3", "-c", "pass"}
	p, err := Parse(argv)
	if err != nil {
		b.Fatal(err)
	}
	conn, stdin, err := Pair()
	if err != nil {
		b.Fatal(err)
	}
	args := Argv(p, "benchmark")
	_, err = sc.Start(proc.Command{Path: args[0], Args: args, Env: os.Environ(), Stdin: stdin, Stderr: os.Stderr})
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
