// Command tree says, by a simulation, whether a tree of agents between a coordinator and its nodes would pay, which are all connected to it
// today: docs/scale.md has its tables and what they mean.
//
//	go run ./tools/scale/tree
//	go run ./tools/scale/tree -cores 16 -card 10e9
//	go run ./tools/scale/tree -pays
//
// What messages cost is measured by rendezvous' BenchmarkConnection, BenchmarkMessage and BenchmarkReport, and is given by flags. A tree is
// taken at its best: every agent knows from the start where it belongs, nobody is slow, and nothing fails.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
)

func main() {
	m, l := Model{}, Load{}
	nodes := flag.String("nodes", "1000,2500,5000,12500,25000,50000,100000", "sizes of the cluster")
	widths := flag.String("widths", "16,32", "widths of trees: Slurm's TreeWidth is 16, and Flux's kary:32 is 32")
	pays := flag.Bool("pays", false, "for each number of cores and each card, print from which size on a tree saves -worth")
	worth := flag.Float64("worth", 1, "seconds that are worth a tree")
	flag.IntVar(&m.Cores, "cores", 2, "cores of the coordinator")
	flag.IntVar(&m.AgentCores, "agent-cores", 2, "cores that an agent may use beside its ranks")
	flag.Float64Var(&m.Card, "card", 10e9, "the coordinator's network card, in bits a second")
	flag.Float64Var(&m.AgentCard, "agent-card", 10e9, "an agent's network card")
	flag.Float64Var(&m.Trip, "trip", 100e-6, "round trip between two nodes, in seconds")
	flag.Float64Var(&m.Join, "join", 1000e-6, "a connection, in seconds of a core for each end, without its hello and its welcome")
	flag.Float64Var(&m.Alone, "alone", 21e-6, "a message that comes alone on its connection, in seconds of a core for each end")
	flag.Float64Var(&m.Among, "among", 2.6e-6, "a message among others")
	flag.Float64Var(&m.Byte, "byte", 4e-9, "a byte of a message")
	flag.Float64Var(&m.Beat, "beat", 80e-6, "a heartbeat and its echo, in seconds of a core of the coordinator")
	flag.Float64Var(&m.Admit, "admit", 13e-6, "a hello, in seconds of the coordinator's goroutine")
	flag.Float64Var(&m.Step, "step", 6e-6, "any other report")
	flag.IntVar(&l.Ranks, "ranks", 8, "ranks of a node")
	flag.IntVar(&l.Task, "task", 4<<10, "bytes of a job's command and environment")
	flag.IntVar(&l.Evidence, "evidence", 8<<10, "bytes that a rank has written before it fails")
	flag.IntVar(&l.Answer, "answer", 4<<10, "bytes of a node's answer to a question")
	flag.IntVar(&l.Lines, "lines", 10_000, "bytes that each rank has written when somebody begins to read the logs")
	faults := flag.Float64("faults", 6.5, "failures of 1,000 nodes in a day (Kokolis et al., arXiv 2410.21680: 6.50 and 2.34)")
	flag.Parse()
	sizes, err := numbers(*nodes)
	trees, werr := numbers(*widths)
	if err = errors.Join(err, werr); err != nil || min(m.Cores, m.AgentCores) < 1 || min(m.Card, m.AgentCard) <= 0 {
		fmt.Fprintln(os.Stderr, "numbers of cores, nodes and widths are from 1, those of several with commas between them, and a card has a speed")
		os.Exit(2)
	}
	t := tables{m, l, sizes, trees}
	if *pays {
		t.pays(os.Stdout, *worth)
		return
	}
	t.works(os.Stdout)
	t.rest(os.Stdout)
	t.faults(os.Stdout, *faults)
}

func numbers(list string) (all []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no number from 1", text)
		}
		all = append(all, n)
	}
	return all, nil
}
