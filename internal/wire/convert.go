package wire

import (
	"strings"
	"syscall"
	"unicode"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/golaunch/golaunch/internal/core/job"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/placement"
)

// tail keeps the end of a rank's output. The output may be any bytes.
func tail[T string | []byte](b T) T { return b[max(0, len(b)-MaxTail):] }

// Plain turns a text into one bounded line that is harmless in a terminal, and valid UTF-8, as
// protobuf requires of strings.
func Plain(s string) string {
	return line(s, MaxText)
}

// line is Plain with a bound of its own.
func line(s string, most int) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, valid(s[:min(len(s), most)]))
}

// valid makes a text valid UTF-8, as protobuf requires of strings.
func valid(s string) string { return strings.ToValidUTF8(s, "?") }

// FromEvent converts an agent's report. It returns nil for an event that no agent reports.
func FromEvent(id string, ev any) *pb.FromAgent {
	msg := &pb.FromAgent{Job: id}
	switch e := ev.(type) {
	case Opened:
		msg.Body = &pb.FromAgent_Opened{Opened: &pb.Opened{}}
	case Restated:
		msg.Body = &pb.FromAgent_Restated{Restated: &pb.Restated{}}
	case job.Prepared:
		msg.Body = &pb.FromAgent_Prepared{Prepared: &pb.Prepared{
			Unit: int32(e.Unit), Attempt: int32(e.Attempt), Port: int32(e.Port), Err: Plain(e.Err), Unable: fromExit(e.Unable),
		}}
	case job.Reached:
		msg.Body = &pb.FromAgent_Reached{Reached: &pb.Reached{
			Seq: int32(e.Seq), Err: Plain(e.Err), Unable: fromExit(e.Unable),
		}}
	case job.Started:
		msg.Body = &pb.FromAgent_Started{Started: &pb.Started{
			Unit: int32(e.Unit), Attempt: int32(e.Attempt), Pids: Convert(e.PIDs, toInt32),
			Ras: Convert(e.RAS, fromRAS), Imports: fromImports(e.Imports),
		}}
	case Draining:
		msg.Body = &pb.FromAgent_Draining{Draining: &pb.Draining{
			Within: durationpb.New(e.Within), Why: Plain(e.Why), All: e.All, Signal: int32(e.Signal),
		}}
	case Freed:
		msg.Body = &pb.FromAgent_Freed{Freed: &pb.Freed{Gpus: Convert(e.GPUs, fromGPU)}}
	case job.Ready:
		msg.Body = &pb.FromAgent_Ready{Ready: &pb.Ready{Unit: int32(e.Unit), Attempt: int32(e.Attempt)}}
	case job.Catching:
		msg.Body = &pb.FromAgent_Catching{Catching: &pb.Catching{Unit: int32(e.Unit), Attempt: int32(e.Attempt)}}
	case Met:
		msg.Body = &pb.FromAgent_Met{Met: fromMet(e)}
	case Replica:
		msg.Body = &pb.FromAgent_Replica{Replica: fromReplica(e)}
	case job.Stalled:
		ranks := telling(e.Ranks)
		msg.Body = &pb.FromAgent_Stalled{Stalled: &pb.Stalled{
			Unit: int32(e.Unit), Attempt: int32(e.Attempt), Ranks: Convert(ranks, fromStill), Behind: Convert(e.Behind, fromClient),
			More: int32(e.More + len(e.Ranks) - len(ranks)), Moving: int32(e.Moving),
		}}
	case job.Stepped:
		msg.Body = &pb.FromAgent_Stepped{Stepped: &pb.Stepped{
			Unit: int32(e.Unit), Attempt: int32(e.Attempt), Step: e.Step, Ago: durationpb.New(e.Ago),
		}}
	case job.Saved:
		msg.Body = &pb.FromAgent_Saved{Saved: fromSaved(e)}
	case job.Exited:
		msg.Body = &pb.FromAgent_Exited{Exited: &pb.Exited{
			Unit: int32(e.Unit), Attempt: int32(e.Attempt), Rank: int32(e.Rank), Exit: fromExit(e.Exit), At: fromTime(e.At),
			Lived: durationpb.New(e.Lived), Told: e.Told, Alike: e.Alike, Step: e.Step, Kernel: []byte(tail(e.Kernel)), Tail: []byte(tail(e.Tail)), Traceback: []byte(tail(e.Traceback)),
		}}
	case job.Stopped:
		msg.Body = &pb.FromAgent_Stopped{Stopped: &pb.Stopped{Unit: int32(e.Unit), Attempt: int32(e.Attempt)}}
	default:
		return nil
	}
	return msg
}

// ToEvent converts a report of the named node. It returns nil for a message that is not an event
// of a job.
func ToEvent(node string, m *pb.FromAgent) job.Event {
	switch b := m.GetBody().(type) {
	case *pb.FromAgent_Prepared:
		e := b.Prepared
		return job.Prepared{
			Node: node, Unit: int(e.GetUnit()), Attempt: int(e.GetAttempt()), Port: int(e.GetPort()),
			Err: Plain(e.GetErr()), Unable: toExit(e.GetUnable()),
		}
	case *pb.FromAgent_Reached:
		return job.Reached{Node: node, Seq: int(b.Reached.GetSeq()), Err: Plain(b.Reached.GetErr()), Unable: toExit(b.Reached.GetUnable())}
	case *pb.FromAgent_Started:
		return job.Started{
			Node: node, Unit: int(b.Started.GetUnit()), Attempt: int(b.Started.GetAttempt()),
			PIDs: Convert(b.Started.GetPids(), toInt), RAS: Convert(b.Started.GetRas(), Plain),
			Imports: toImports(b.Started.GetImports()),
		}
	case *pb.FromAgent_Ready:
		return job.Ready{Node: node, Unit: int(b.Ready.GetUnit()), Attempt: int(b.Ready.GetAttempt())}
	case *pb.FromAgent_Catching:
		return job.Catching{Node: node, Unit: int(b.Catching.GetUnit()), Attempt: int(b.Catching.GetAttempt())}
	case *pb.FromAgent_Stalled:
		e := b.Stalled
		return job.Stalled{
			Node: node, Unit: int(e.GetUnit()), Attempt: int(e.GetAttempt()),
			Ranks: Convert(e.GetRanks(), toStill), Behind: Convert(e.GetBehind(), toClient), More: int(e.GetMore()), Moving: int(e.GetMoving()),
		}
	case *pb.FromAgent_Stepped:
		e := b.Stepped
		return job.Stepped{
			Node: node, Unit: int(e.GetUnit()), Attempt: int(e.GetAttempt()), Step: e.GetStep(), Ago: max(0, e.GetAgo().AsDuration()),
		}
	case *pb.FromAgent_Saved:
		return toSaved(node, b.Saved)
	case *pb.FromAgent_Exited:
		e := b.Exited
		return job.Exited{
			Node: node, Unit: int(e.GetUnit()), Attempt: int(e.GetAttempt()), Rank: int(e.GetRank()),
			Exit: toExit(e.GetExit()), At: toTime(e.GetAt()), Lived: e.GetLived().AsDuration(), Told: e.GetTold(), Alike: e.GetAlike(), Step: e.GetStep(), Kernel: string(tail(e.GetKernel())),
			Tail: string(tail(e.GetTail())), Traceback: string(tail(e.GetTraceback())),
		}
	case *pb.FromAgent_Stopped:
		return job.Stopped{Node: node, Unit: int(b.Stopped.GetUnit()), Attempt: int(b.Stopped.GetAttempt())}
	}
	return nil
}

// FromOrder converts an order into one or more messages. [Gather] makes one order of them.
func FromOrder(o Order) (msgs []*pb.ToAgent) {
	switch do := o.Do.(type) {
	case job.Prepare:
		msgs, do.Peers = ahead(o.Job, do.Peers)
		o.Do = do
	case job.Admit:
		msgs, do.Peers = ahead(o.Job, do.Peers)
		o.Do = do
	}
	return append(msgs, fromOrder(o))
}

// fromOrder returns nil for an action that is not an agent's.
func fromOrder(of Order) *pb.ToAgent {
	msg := &pb.ToAgent{Job: of.Job}
	switch o := of.Do.(type) {
	case Assign:
		msg.Body = &pb.ToAgent_Assign{Assign: &pb.Assign{Task: o.Task, Submitter: o.Submitter, Workspace: FromWorkspace(o.Workspace)}}
	case Leave:
		msg.Body = &pb.ToAgent_Leave{Leave: &pb.Leave{Why: Plain(o.Why)}}
	case Ask:
		msg.Body = &pb.ToAgent_Ask{Ask: &pb.Ask{Id: o.ID, Question: fromQuestion(o.Question)}}
	case job.Prepare:
		msg.Body = &pb.ToAgent_Prepare{Prepare: &pb.Prepare{
			Unit: int32(o.Unit), Attempt: int32(o.Attempt), Fresh: o.Fresh, Peers: fromPeers(o.Peers), Ranks: int32(o.Ranks),
		}}
	case job.Admit:
		msg.Body = &pb.ToAgent_Admit{Admit: &pb.Admit{Peers: fromPeers(o.Peers)}}
	case job.Reach:
		msg.Body = &pb.ToAgent_Reach{Reach: &pb.Reach{
			Seq: int32(o.Seq), Addr: o.Addr, Port: int32(o.Port), Late: o.Late, Ranks: int32(o.Ranks), Unit: int32(o.Unit),
		}}
	case job.Start:
		msg.Body = &pb.ToAgent_Start{Start: &pb.Start{
			Unit: int32(o.Unit), Attempt: int32(o.Attempt),
			NodeRank: int32(o.Group.NodeRank), Bundles: Convert(o.Group.Bundles, fromBundle), World: fromWorld(o.World), OwnRules: o.OwnRules,
		}}
	case job.Notice:
		msg.Body = &pb.ToAgent_Notice{Notice: &pb.Notice{
			Unit: int32(o.Unit), Attempt: int32(o.Attempt), Within: durationpb.New(o.Within), Why: Plain(o.Why),
		}}
	case job.Stop:
		msg.Body = &pb.ToAgent_Stop{Stop: &pb.Stop{
			Unit: int32(o.Unit), Attempt: int32(o.Attempt),
			Grace: durationpb.New(o.Grace), Kill: o.Kill, Evidence: string(o.Evidence), Signal: int32(o.Signal),
		}}
	case job.Finish:
		msg.Body = &pb.ToAgent_Finish{Finish: &pb.Finish{Result: fromResult(o.Result)}}
	case Signal:
		msg.Body = &pb.ToAgent_Signal{Signal: &pb.Signal{Number: int32(o.Number)}}
	case Cohort:
		msg.Body = &pb.ToAgent_ReplicaQuorum{ReplicaQuorum: fromCohort(o)}
	default:
		return nil
	}
	return msg
}

// ToAction converts an order to the given node. It returns nil for a message that is not an order.
func ToAction(node placement.Node, m *pb.ToAgent) any {
	switch b := m.GetBody().(type) {
	case *pb.ToAgent_Prepare:
		return job.Prepare{
			Node: node.Name, Unit: int(b.Prepare.GetUnit()), Attempt: int(b.Prepare.GetAttempt()),
			Fresh: b.Prepare.GetFresh(), Peers: Convert(b.Prepare.GetPeers(), toAddr), Ranks: int(b.Prepare.GetRanks()),
		}
	case *pb.ToAgent_Admit:
		return job.Admit{Node: node.Name, Peers: Convert(b.Admit.GetPeers(), toAddr)}
	case *pb.ToAgent_Reach:
		o := b.Reach
		return job.Reach{Node: node.Name, Seq: int(o.GetSeq()), Addr: o.GetAddr(), Port: int(o.GetPort()), Late: o.GetLate(), Ranks: int(o.GetRanks()), Unit: int(o.GetUnit())}
	case *pb.ToAgent_Start:
		o := b.Start
		group := placement.Group{Node: node, NodeRank: int(o.GetNodeRank()), Bundles: Convert(o.GetBundles(), toBundle)}
		return job.Start{Unit: int(o.GetUnit()), Attempt: int(o.GetAttempt()), Group: group, World: toWorld(o.GetWorld()), OwnRules: o.GetOwnRules()}
	case *pb.ToAgent_Notice:
		o := b.Notice
		return job.Notice{
			Node: node.Name, Unit: int(o.GetUnit()), Attempt: int(o.GetAttempt()), Within: o.GetWithin().AsDuration(), Why: Plain(o.GetWhy()),
		}
	case *pb.ToAgent_Stop:
		return job.Stop{
			Node: node.Name, Unit: int(b.Stop.GetUnit()), Attempt: int(b.Stop.GetAttempt()),
			Grace: b.Stop.GetGrace().AsDuration(), Kill: b.Stop.GetKill(), Evidence: job.Evidence(b.Stop.GetEvidence()),
			Signal: int(b.Stop.GetSignal()),
		}
	case *pb.ToAgent_Finish:
		return job.Finish{Result: ToResult(b.Finish.GetResult())}
	case *pb.ToAgent_Assign:
		return Assign{b.Assign.GetTask(), b.Assign.Submitter, ToWorkspace(b.Assign.GetWorkspace())}
	case *pb.ToAgent_Leave:
		return Leave{Plain(b.Leave.GetWhy())}
	case *pb.ToAgent_Ask:
		return Ask{Question: ToQuestion(b.Ask.GetQuestion()), ID: b.Ask.GetId()}
	case *pb.ToAgent_Signal:
		return Signal{syscall.Signal(b.Signal.GetNumber())}
	case *pb.ToAgent_ReplicaQuorum:
		return toCohort(b.ReplicaQuorum)
	}
	return nil
}
