package main

import (
	"net/netip"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Load is how much there is to say: Ranks of each node, the bytes of a job's Task, of the Evidence of a rank that fails, of a node's Answer to
// a question, and of the Lines that a rank has written when somebody begins to read them.
type Load struct{ Ranks, Task, Evidence, Answer, Lines int }

// work is something that a cluster does.
type work struct {
	name   string
	rounds []Round
}

// works are what the model does. The messages are those of a cluster (rendezvous, internal/wire/session), in their real sizes, but for the few that
// only one node gets.
func (l Load) works(c Cost) []work {
	again := said(wire.Opened{}, l.started(), wire.Restated{})
	again.Count, again.Bytes = again.Count+1, again.Bytes+l.hello().Bytes
	reach := Round{
		Order:  ordered(job.Reach{Seq: 1 << 13, Addr: "10.10.10.10", Port: 40_000, Ranks: l.Ranks}),
		Answer: said(job.Reached{Seq: 1 << 13}), Step: c.Step,
	}
	assign := reach
	assign.Same = ordered(wire.Assign{Task: make([]byte, l.Task)})
	start := Round{Order: l.start(), Answer: said(l.started()), Step: c.Step}
	fail := func(evidence int) Round {
		stop := ordered(job.Stop{Attempt: 1, Grace: 30 * time.Second, Evidence: job.CrashEvidence})
		return Round{News: l.exits(evidence), Same: stop, Answer: said(job.Stopped{Attempt: 1}), Step: c.Step}
	}
	return []work{
		{"register", []Round{{Joins: All, News: l.hello(), Same: welcome(), Step: c.Admit}}},
		{"the coordinator is back", []Round{{Joins: Below, Same: welcome(), Answer: again, Step: c.Step}}},
		{"start", []Round{assign, start}},
		{"all ranks fail, to all restarted", []Round{fail(l.Evidence), reach, start}},
		{"the same, evidence on demand", []Round{fail(0), reach, start}},
		{"question to all", []Round{c.question(1, l.Answer)}},
		{"logs of all", []Round{c.question(l.Ranks, l.Lines)}},
	}
}

// question is one to all nodes, each of which answers so many messages in a stream of its own, whose headers and end count as two more. The
// coordinator's goroutine hears of the stream's beginning and of its end.
func (c Cost) question(messages, each int) Round {
	answer := Message{Count: messages + 2, Bytes: messages*(each+40) + 60}
	return Round{Same: ordered(wire.Ask{ID: strings.Repeat("x", 26)}), Answer: answer, Step: 2 * c.Step / float64(answer.Count), Reader: true}
}

// when is a time, with as many digits as most.
var when = time.Unix(1_800_000_000, 999_999_999)

func welcome() Message {
	m := &pb.Welcome{
		Epoch: strings.Repeat("x", 26), Lease: durationpb.New(wire.DefaultLease),
		Heartbeat: &pb.Heartbeat{At: durationpb.New(time.Second), Time: timestamppb.New(when)},
	}
	return Message{Count: 1, Bytes: proto.Size(m)}
}

func (l Load) hello() Message {
	n := placement.Node{Name: "gpu-node-00000", Addr: netip.MustParseAddr("10.10.10.10"), CPUs: 192, Memory: 2 << 40, GPUs: l.gpus()}
	h := &pb.Hello{
		Protocol: wire.Protocol, Version: "v0.0.0-20261124000000-0123456789ab", Node: wire.FromNode(n), Instance: strings.Repeat("x", 26),
		Time: timestamppb.New(when), Heartbeat: &pb.Heartbeat{At: durationpb.New(time.Second)}, Commitment: make([]byte, 32),
	}
	return Message{Count: 1, Bytes: proto.Size(h)}
}

func (l Load) gpus() (gpus []placement.GPU) {
	for i := range l.Ranks {
		gpus = append(gpus, placement.GPU{Index: i, UUID: "GPU-01234567-89ab-cdef-0123-456789abcdef"})
	}
	return gpus
}

func (l Load) start() Message {
	s := job.Start{Attempt: 1, World: job.World{
		WorldSize: 1 << 17, Nodes: 1 << 14, MasterAddr: "10.10.10.10", MasterPort: 40_000, Uniform: l.Ranks, MaxRestarts: 3,
		LocalSize: l.Ranks, GPUs: l.gpus(),
	}}
	s.Group.NodeRank = 1 << 13
	for i, g := range l.gpus() {
		s.Group.Bundles = append(s.Group.Bundles, placement.Bundle{Rank: 1<<16 + i, LocalRank: i, GPU: &g})
	}
	return ordered(s)
}

func (l Load) started() job.Started {
	s := job.Started{Attempt: 1}
	for i := range l.Ranks {
		s.PIDs = append(s.PIDs, 1<<20+i)
	}
	return s
}

func (l Load) exits(evidence int) Message {
	one := said(job.Exited{
		Attempt: 1, Rank: 1 << 16, Exit: report.Exit{Code: 1}, At: when, Lived: time.Hour, Step: 1 << 16, Tail: strings.Repeat("x", evidence),
	})
	return Message{Count: l.Ranks, Bytes: l.Ranks * one.Bytes, Evidence: l.Ranks * evidence}
}

// said are reports, with their number and the name of a job.
func said(events ...any) (sum Message) {
	for _, ev := range events {
		m := wire.FromEvent("train-20261124", ev)
		m.Seq = 1 << 10
		sum.Count, sum.Bytes = sum.Count+1, sum.Bytes+proto.Size(m)
	}
	return sum
}

func ordered(do any) Message {
	m := wire.FromOrder(wire.Order{Job: "train-20261124", Do: do})
	m.Acked = 1 << 10
	return Message{Count: 1, Bytes: proto.Size(m)}
}
