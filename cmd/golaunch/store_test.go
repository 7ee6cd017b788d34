package main

import (
	"strings"
	"testing"
)

// TestTheStoreIsTheJobs serves the store to the job's nodes alone: a third machine is disconnected, and named.
func TestTheStoreIsTheJobs(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	job := []string{
		"--nodes", "2", "--procs-per-node", "1", "--master-port", "29123", "--grace", "1s",
		"--", "sh", "-c", "echo rank $RANK is up; read line </dev/null; sleep 1000",
	}
	first := start(t, join(t, nodes[0], "n2", token, job...))
	second := start(t, join(t, nodes[1], "n10", token, job...))
	first.line("rank 0 is up")
	second.line("rank 1 is up")
	// The greeting of a torch client, and a ping.
	greet := `exec 3<>/dev/tcp/10.77.0.2/29123 && printf '\000\316\367\205\074\015\001\000\000\000' >&3; head -c 4 <&3 | wc -c`
	if _, text := start(t, nodes[2].Command("bash", "-c", greet)).wait(); !strings.HasSuffix(strings.TrimSpace(text), "0") {
		t.Errorf("a machine that is no node of the job got an answer: %q", text)
	}
	first.line("warning: store of job .*10.77.0.9")
	if _, text := start(t, nodes[1].Command("bash", "-c", greet)).wait(); strings.TrimSpace(text) != "4" {
		t.Errorf("a node of the job got %q bytes back, want the 4 of the ping", text)
	}
}
