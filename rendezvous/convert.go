package rendezvous

import (
	"net/netip"
	"strings"
	"syscall"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/golaunch/golaunch/internal/job"
	"github.com/golaunch/golaunch/placement"
	pb "github.com/golaunch/golaunch/rendezvous/rendezvouspb"
)

// Order is what a node is asked to do for a job, or for all jobs when Job is empty. The same order can come twice.
type Order struct {
	Job string
	// Do is a [job.Prepare], [job.Admit], [job.Reach], [job.Start], [job.Stop] or [job.Finish], or one of [Assign], [Signal], [Leave],
	// [ReadLogs], [Restate].
	Do any
}

type (
	// Assign says that the node gets ranks of a job, whose Submission has this Task.
	Assign struct{ Task []byte }
	// Signal asks for a signal to the ranks of the node.
	Signal struct{ Number syscall.Signal }
	// Leave asks the agent to go, for nothing holds the node any more.
	Leave struct{ Why string }
	// Restate asks the agent to report again, of each job that it knows, [Opened] and all that it reported of the job's newest
	// attempts; after that, [Restated].
	Restate struct{}
)

type (
	// Opened is a report that the agent knows a job.
	Opened struct{}
	// Draining is a report that the node will be gone, after the time of Within at the latest. It is about all jobs, which give the
	// node up; an order to leave follows when they have. With All, somebody else will end all nodes of the only job then.
	Draining struct {
		Why    string
		Within time.Duration
		All    bool
	}
	// Restated ends what [Restate] asked for.
	Restated struct{}
)

// Bounds in bytes, kept by sender and receiver, so that a report always fits into a message.
const (
	maxTail = 32 << 10
	maxText = 4 << 10
)

// tail keeps the end of a rank's output, which may be any bytes.
func tail[T string | []byte](b T) T { return b[max(0, len(b)-maxTail):] }

// plain bounds a text, makes it UTF-8, which protobuf demands of a string, and one line that is harmless in a terminal.
func plain(s string) string {
	s = strings.ToValidUTF8(s[:min(len(s), maxText)], "?")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

// fromEvent translates an agent's report. It is nil for an event that no agent reports.
func fromEvent(id string, ev any) *pb.FromAgent {
	msg := fromReport(ev)
	if msg != nil {
		msg.Job = id
	}
	return msg
}

func fromReport(ev any) *pb.FromAgent {
	switch e := ev.(type) {
	case Opened:
		return &pb.FromAgent{Body: &pb.FromAgent_Opened{Opened: &pb.Opened{}}}
	case Restated:
		return &pb.FromAgent{Body: &pb.FromAgent_Restated{Restated: &pb.Restated{}}}
	case job.Prepared:
		return &pb.FromAgent{Body: &pb.FromAgent_Prepared{Prepared: &pb.Prepared{
			Unit: int32(e.Unit), Attempt: int32(e.Attempt), Port: int32(e.Port), Err: plain(e.Err),
		}}}
	case job.Reached:
		return &pb.FromAgent{Body: &pb.FromAgent_Reached{Reached: &pb.Reached{Seq: int32(e.Seq), Err: plain(e.Err)}}}
	case job.Started:
		return &pb.FromAgent{Body: &pb.FromAgent_Started{Started: &pb.Started{
			Unit: int32(e.Unit), Attempt: int32(e.Attempt), Pids: convert(e.PIDs, func(pid int) int32 { return int32(pid) }),
			Ras: convert(e.RAS, plain),
		}}}
	case Draining:
		return &pb.FromAgent{Body: &pb.FromAgent_Draining{Draining: &pb.Draining{
			Within: durationpb.New(e.Within), Why: plain(e.Why), All: e.All,
		}}}
	case job.Ready:
		return &pb.FromAgent{Body: &pb.FromAgent_Ready{Ready: &pb.Ready{Unit: int32(e.Unit), Attempt: int32(e.Attempt)}}}
	case job.Met:
		return &pb.FromAgent{Body: &pb.FromAgent_Met{Met: &pb.Met{
			Unit: int32(e.Unit), Attempt: int32(e.Attempt), Clients: convert(e.Clients, fromClient),
		}}}
	case job.Stalled:
		return &pb.FromAgent{Body: &pb.FromAgent_Stalled{Stalled: &pb.Stalled{
			Unit: int32(e.Unit), Attempt: int32(e.Attempt), Ranks: convert(e.Ranks, fromStill), Behind: convert(e.Behind, fromClient),
		}}}
	case job.Stepped:
		return &pb.FromAgent{Body: &pb.FromAgent_Stepped{Stepped: &pb.Stepped{
			Unit: int32(e.Unit), Attempt: int32(e.Attempt), Step: e.Step, Ago: durationpb.New(e.Ago),
		}}}
	case job.Exited:
		return &pb.FromAgent{Body: &pb.FromAgent_Exited{Exited: &pb.Exited{
			Unit: int32(e.Unit), Attempt: int32(e.Attempt), Rank: int32(e.Rank), Exit: fromExit(e.Exit), At: fromTime(e.At),
			Lived: durationpb.New(e.Lived), Told: e.Told, Step: e.Step, Kernel: []byte(tail(e.Kernel)), Tail: []byte(tail(e.Tail)), Traceback: []byte(tail(e.Traceback)),
		}}}
	case job.Stopped:
		return &pb.FromAgent{Body: &pb.FromAgent_Stopped{Stopped: &pb.Stopped{Unit: int32(e.Unit), Attempt: int32(e.Attempt)}}}
	default:
		return nil
	}
}

// toEvent translates a report of the named node. It is nil for a message that is no event of a job.
func toEvent(node string, m *pb.FromAgent) job.Event {
	switch b := m.GetBody().(type) {
	case *pb.FromAgent_Prepared:
		e := b.Prepared
		return job.Prepared{
			Node: node, Unit: int(e.GetUnit()), Attempt: int(e.GetAttempt()), Port: int(e.GetPort()),
			Err: plain(e.GetErr()),
		}
	case *pb.FromAgent_Reached:
		return job.Reached{Node: node, Seq: int(b.Reached.GetSeq()), Err: plain(b.Reached.GetErr())}
	case *pb.FromAgent_Started:
		return job.Started{
			Node: node, Unit: int(b.Started.GetUnit()), Attempt: int(b.Started.GetAttempt()),
			PIDs: convert(b.Started.GetPids(), func(pid int32) int { return int(pid) }), RAS: convert(b.Started.GetRas(), plain),
		}
	case *pb.FromAgent_Ready:
		return job.Ready{Node: node, Unit: int(b.Ready.GetUnit()), Attempt: int(b.Ready.GetAttempt())}
	case *pb.FromAgent_Met:
		return job.Met{
			Node: node, Unit: int(b.Met.GetUnit()), Attempt: int(b.Met.GetAttempt()), Clients: convert(b.Met.GetClients(), toClient),
		}
	case *pb.FromAgent_Stalled:
		e := b.Stalled
		return job.Stalled{
			Node: node, Unit: int(e.GetUnit()), Attempt: int(e.GetAttempt()),
			Ranks: convert(e.GetRanks(), toStill), Behind: convert(e.GetBehind(), toClient),
		}
	case *pb.FromAgent_Stepped:
		e := b.Stepped
		return job.Stepped{
			Node: node, Unit: int(e.GetUnit()), Attempt: int(e.GetAttempt()), Step: e.GetStep(), Ago: max(0, e.GetAgo().AsDuration()),
		}
	case *pb.FromAgent_Exited:
		e := b.Exited
		return job.Exited{
			Node: node, Unit: int(e.GetUnit()), Attempt: int(e.GetAttempt()), Rank: int(e.GetRank()),
			Exit: toExit(e.GetExit()), At: toTime(e.GetAt()), Lived: e.GetLived().AsDuration(), Told: e.GetTold(), Step: e.GetStep(), Kernel: string(tail(e.GetKernel())),
			Tail: string(tail(e.GetTail())), Traceback: string(tail(e.GetTraceback())),
		}
	case *pb.FromAgent_Stopped:
		return job.Stopped{Node: node, Unit: int(b.Stopped.GetUnit()), Attempt: int(b.Stopped.GetAttempt())}
	}
	return nil
}

func fromClient(c job.Client) *pb.Client {
	return &pb.Client{Addr: c.Addr.AsSlice(), Pid: int32(c.PID), Key: plain(c.Key)}
}

func toClient(c *pb.Client) job.Client {
	return job.Client{Addr: toAddr(c.GetAddr()), PID: int(c.GetPid()), Key: plain(c.GetKey())}
}

func fromStill(s job.Still) *pb.Still {
	return &pb.Still{Rank: int32(s.Rank), For: durationpb.New(s.For), Beat: s.Beat, Step: s.Step, Does: plain(s.Does)}
}

func toStill(s *pb.Still) job.Still {
	return job.Still{
		Rank: int(s.GetRank()), For: s.GetFor().AsDuration(), Beat: s.GetBeat(), Step: s.GetStep(), Does: plain(s.GetDoes()),
	}
}

// fromOrder translates an order. It is nil for an action that is no agent's.
func fromOrder(o Order) *pb.ToAgent {
	msg := fromAction(o.Do)
	if msg != nil {
		msg.Job = o.Job
	}
	return msg
}

func fromAction(do any) *pb.ToAgent {
	switch o := do.(type) {
	case Assign:
		return &pb.ToAgent{Body: &pb.ToAgent_Assign{Assign: &pb.Assign{Task: o.Task}}}
	case Leave:
		return &pb.ToAgent{Body: &pb.ToAgent_Leave{Leave: &pb.Leave{Why: plain(o.Why)}}}
	case ReadLogs:
		return &pb.ToAgent{Body: &pb.ToAgent_ReadLogs{ReadLogs: &pb.ReadLogs{Id: o.id, Filter: fromFilter(o.Filter)}}}
	case job.Prepare:
		return &pb.ToAgent{Body: &pb.ToAgent_Prepare{Prepare: &pb.Prepare{
			Unit: int32(o.Unit), Attempt: int32(o.Attempt), Fresh: o.Fresh, Peers: fromPeers(o.Peers),
		}}}
	case job.Admit:
		return &pb.ToAgent{Body: &pb.ToAgent_Admit{Admit: &pb.Admit{Peers: fromPeers(o.Peers)}}}
	case job.Reach:
		return &pb.ToAgent{Body: &pb.ToAgent_Reach{Reach: &pb.Reach{
			Seq: int32(o.Seq), Addr: o.Addr, Port: int32(o.Port), Late: o.Late,
		}}}
	case job.Start:
		return &pb.ToAgent{Body: &pb.ToAgent_Start{Start: &pb.Start{
			Unit: int32(o.Unit), Attempt: int32(o.Attempt),
			NodeRank: int32(o.Group.NodeRank), Bundles: convert(o.Group.Bundles, fromBundle), World: fromWorld(o.World),
		}}}
	case job.Notice:
		return &pb.ToAgent{Body: &pb.ToAgent_Notice{Notice: &pb.Notice{
			Unit: int32(o.Unit), Attempt: int32(o.Attempt), Within: durationpb.New(o.Within), Why: plain(o.Why),
		}}}
	case job.Stop:
		return &pb.ToAgent{Body: &pb.ToAgent_Stop{Stop: &pb.Stop{
			Unit: int32(o.Unit), Attempt: int32(o.Attempt),
			Grace: durationpb.New(o.Grace), Kill: o.Kill, Evidence: string(o.Evidence),
		}}}
	case job.Finish:
		return &pb.ToAgent{Body: &pb.ToAgent_Finish{Finish: &pb.Finish{Result: fromResult(o.Result)}}}
	case Signal:
		return &pb.ToAgent{Body: &pb.ToAgent_Signal{Signal: &pb.Signal{Number: int32(o.Number)}}}
	}
	return nil
}

// toAction translates what the given node is asked. It is nil for a message that is no order.
func toAction(node placement.Node, m *pb.ToAgent) any {
	switch b := m.GetBody().(type) {
	case *pb.ToAgent_Prepare:
		return job.Prepare{
			Node: node.Name, Unit: int(b.Prepare.GetUnit()), Attempt: int(b.Prepare.GetAttempt()),
			Fresh: b.Prepare.GetFresh(), Peers: convert(b.Prepare.GetPeers(), toAddr),
		}
	case *pb.ToAgent_Admit:
		return job.Admit{Node: node.Name, Peers: convert(b.Admit.GetPeers(), toAddr)}
	case *pb.ToAgent_Reach:
		o := b.Reach
		return job.Reach{Node: node.Name, Seq: int(o.GetSeq()), Addr: o.GetAddr(), Port: int(o.GetPort()), Late: o.GetLate()}
	case *pb.ToAgent_Start:
		o := b.Start
		group := placement.Group{Node: node, NodeRank: int(o.GetNodeRank()), Bundles: convert(o.GetBundles(), toBundle)}
		return job.Start{Unit: int(o.GetUnit()), Attempt: int(o.GetAttempt()), Group: group, World: toWorld(o.GetWorld())}
	case *pb.ToAgent_Notice:
		o := b.Notice
		return job.Notice{
			Node: node.Name, Unit: int(o.GetUnit()), Attempt: int(o.GetAttempt()), Within: o.GetWithin().AsDuration(), Why: plain(o.GetWhy()),
		}
	case *pb.ToAgent_Stop:
		return job.Stop{
			Node: node.Name, Unit: int(b.Stop.GetUnit()), Attempt: int(b.Stop.GetAttempt()),
			Grace: b.Stop.GetGrace().AsDuration(), Kill: b.Stop.GetKill(), Evidence: job.Evidence(b.Stop.GetEvidence()),
		}
	case *pb.ToAgent_Finish:
		return job.Finish{Result: toResult(b.Finish.GetResult())}
	case *pb.ToAgent_Assign:
		return Assign{b.Assign.GetTask()}
	case *pb.ToAgent_Leave:
		return Leave{plain(b.Leave.GetWhy())}
	case *pb.ToAgent_ReadLogs:
		return ReadLogs{Filter: toFilter(b.ReadLogs.GetFilter()), id: b.ReadLogs.GetId()}
	case *pb.ToAgent_Signal:
		return Signal{syscall.Signal(b.Signal.GetNumber())}
	}
	return nil
}

func fromNode(n placement.Node) *pb.Node {
	return &pb.Node{
		Name: n.Name, Addr: n.Addr.String(), Gpus: convert(n.GPUs, fromGPU), Cpus: int64(n.CPUs), Memory: n.Memory,
		Labels: n.Labels, Others: convert(n.Others, netip.Addr.AsSlice),
	}
}

// maxPeers bounds a question for a port. Of a job with more addresses every machine may come.
const maxPeers = 50_000

func fromPeers(peers []netip.Addr) [][]byte {
	if len(peers) > maxPeers {
		return nil
	}
	return convert(peers, netip.Addr.AsSlice)
}

// toAddr leaves an address zero that is none.
func toAddr(b []byte) netip.Addr {
	addr, _ := netip.AddrFromSlice(b)
	return addr.Unmap()
}

// toNode leaves Addr zero when it is no address.
func toNode(n *pb.Node) placement.Node {
	addr, _ := netip.ParseAddr(n.GetAddr())
	return placement.Node{
		Name: n.GetName(), Addr: addr.Unmap(), GPUs: convert(n.GetGpus(), toGPU), CPUs: int(n.GetCpus()),
		Memory: n.GetMemory(), Labels: n.GetLabels(), Others: convert(n.GetOthers(), toAddr),
	}
}

func fromGPU(g placement.GPU) *pb.GPU {
	return &pb.GPU{Index: int32(g.Index), Uuid: g.UUID, HeldBy: plain(g.HeldBy)}
}

func toGPU(g *pb.GPU) placement.GPU {
	return placement.GPU{Index: int(g.GetIndex()), UUID: g.GetUuid(), HeldBy: g.GetHeldBy()}
}

func fromBundle(b placement.Bundle) *pb.Bundle {
	return &pb.Bundle{Rank: int32(b.Rank), LocalRank: int32(b.LocalRank), Gpu: optional(b.GPU, fromGPU)}
}

func toBundle(b *pb.Bundle) placement.Bundle {
	bundle := placement.Bundle{Rank: int(b.GetRank()), LocalRank: int(b.GetLocalRank())}
	if b.GetGpu() != nil {
		bundle.GPU = new(toGPU(b.GetGpu()))
	}
	return bundle
}

func fromWorld(w job.World) *pb.World {
	return &pb.World{
		WorldSize: int32(w.WorldSize), Nodes: int32(w.Nodes), MasterAddr: w.MasterAddr,
		MasterPort: int32(w.MasterPort), Uniform: int32(w.Uniform), MaxRestarts: int32(w.MaxRestarts),
		LocalSize: int32(w.LocalSize), Gpus: convert(w.GPUs, fromGPU), Network: plain(w.Network),
	}
}

func toWorld(w *pb.World) job.World {
	return job.World{
		WorldSize: int(w.GetWorldSize()), Nodes: int(w.GetNodes()), MasterAddr: w.GetMasterAddr(),
		MasterPort: int(w.GetMasterPort()), Uniform: int(w.GetUniform()), MaxRestarts: int(w.GetMaxRestarts()),
		LocalSize: int(w.GetLocalSize()), GPUs: convert(w.GetGpus(), toGPU), Network: w.GetNetwork(),
	}
}

func fromResult(r job.Result) *pb.Result {
	return &pb.Result{
		Code: int32(r.Code), Ending: string(r.Ending), Reason: plain(r.Reason), Cause: optional(r.Cause, fromFailure),
		Attempts: int32(r.Attempts), Restarts: int32(r.Restarts), Goodput: optional(r.Goodput, fromGoodput),
	}
}

func toResult(r *pb.Result) job.Result {
	result := job.Result{
		Code: int(r.GetCode()), Ending: job.Ending(r.GetEnding()), Reason: r.GetReason(), Attempts: int(r.GetAttempts()),
		Restarts: int(r.GetRestarts()),
	}
	if r.GetGoodput() != nil {
		result.Goodput = new(toGoodput(r.GetGoodput()))
	}
	if r.GetCause() != nil {
		result.Cause = new(toFailure(r.GetCause()))
	}
	return result
}

func fromFailure(f job.Failure) *pb.Failure {
	return &pb.Failure{
		Node: f.Node, Rank: int32(f.Rank), Gpu: optional(f.GPU, fromGPU), Attempt: int32(f.Attempt),
		Exit: fromExit(f.Exit), At: fromTime(f.At), Lived: durationpb.New(f.Lived), Further: int32(f.Further), Step: f.Step, Kernel: []byte(tail(f.Kernel)),
		Why: plain(f.Why), Tail: []byte(tail(f.Tail)), Traceback: []byte(tail(f.Traceback)), Hung: f.Hung,
	}
}

func toFailure(f *pb.Failure) job.Failure {
	failure := job.Failure{
		Node: f.GetNode(), Rank: int(f.GetRank()), Attempt: int(f.GetAttempt()), Exit: toExit(f.GetExit()),
		At: toTime(f.GetAt()), Lived: f.GetLived().AsDuration(), Further: int(f.GetFurther()), Step: f.GetStep(), Kernel: string(tail(f.GetKernel())), Why: f.GetWhy(), Tail: string(tail(f.GetTail())), Traceback: string(tail(f.GetTraceback())),
		Hung: f.GetHung(),
	}
	if f.GetGpu() != nil {
		failure.GPU = new(toGPU(f.GetGpu()))
	}
	return failure
}

func fromExit(e job.Exit) *pb.Exit {
	return &pb.Exit{Code: int32(e.Code), Signal: int32(e.Signal), Oom: e.OOM, Spawn: plain(e.Spawn)}
}

func toExit(e *pb.Exit) job.Exit {
	return job.Exit{Code: int(e.GetCode()), Signal: int(e.GetSignal()), OOM: e.GetOom(), Spawn: plain(e.GetSpawn())}
}

// fromTime and toTime keep the zero time zero.
func fromTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func toTime(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// convert keeps nil nil.
func convert[A, B any](in []A, f func(A) B) []B {
	if in == nil {
		return nil
	}
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = f(a)
	}
	return out
}

func optional[A, B any](p *A, f func(A) *B) *B {
	if p == nil {
		return nil
	}
	return f(*p)
}
