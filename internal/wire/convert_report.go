package wire

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/lighthouse"
	"github.com/golaunch/golaunch/internal/wire/plainpb"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
)

// fromMet omits the names of the processes if they are too many for a message.
func fromMet(m Met) *pb.Met {
	met := &pb.Met{
		Unit: int32(m.Unit), Attempt: int32(m.Attempt), Key: line(m.Meeting.Key, MaxLine), Came: int32(m.Meeting.Came),
		Waiting: int32(m.Meeting.Waiting), Homes: fromClients(m.Meeting.Clients),
	}
	if last := m.Meeting.Last; last != nil {
		met.Complete = &pb.Complete{Ago: durationpb.New(m.Meeting.Ago), Last: fromClient(*last)}
	}
	if plainpb.Oversize(met, MaxReport) > 0 {
		met.Homes = nil
	}
	return met
}

func fromClients(clients []job.Client) (homes []*pb.Home) {
	at := map[netip.Addr]*pb.Home{}
	for _, c := range clients {
		h := at[c.Addr]
		if h == nil {
			h = &pb.Home{Addr: c.Addr.AsSlice()}
			at[c.Addr], homes = h, append(homes, h)
		}
		if c.Key == "" {
			h.Idle = append(h.Idle, int32(c.PID))
		} else {
			h.Waiting = append(h.Waiting, int32(c.PID))
		}
	}
	return homes
}

func ToMeeting(m *pb.Met) job.Meeting {
	meeting := job.Meeting{Key: line(m.GetKey(), MaxLine), Came: int(m.GetCame()), Waiting: int(m.GetWaiting())}
	if c := m.GetComplete(); c != nil {
		meeting.Last, meeting.Ago = new(toClient(c.GetLast())), max(0, c.GetAgo().AsDuration())
	}
	for _, h := range m.GetHomes() {
		addr := toAddr(h.GetAddr())
		for _, pid := range h.GetIdle() {
			meeting.Clients = append(meeting.Clients, job.Client{Addr: addr, PID: int(pid)})
		}
		for _, pid := range h.GetWaiting() {
			meeting.Clients = append(meeting.Clients, job.Client{Addr: addr, PID: int(pid), Key: meeting.Key})
		}
	}
	return meeting
}

// telling chooses the ranks to name if a report has too many. Half of the chosen ranks are the
// ranks that are furthest behind, or that have the rarest activities. The other half shows how the
// other ranks differ from them.
func telling(ranks []job.Still) []job.Still {
	if len(ranks) <= maxStill {
		return ranks
	}
	doing := map[string]int{}
	for _, r := range ranks {
		doing[r.Does]++
	}
	all := slices.SortedStableFunc(slices.Values(ranks), func(a, b job.Still) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(doing[a.Does], doing[b.Does]))
	})
	return slices.Concat(all[:maxStill/2], all[len(all)-maxStill/2:])
}

// fromRAS drops an address that is too long.
func fromRAS(addr string) string {
	if len(addr) > MaxRAS {
		return ""
	}
	return Plain(addr)
}

func fromClient(c job.Client) *pb.Client {
	return &pb.Client{Addr: c.Addr.AsSlice(), Pid: int32(c.PID), Key: line(c.Key, MaxLine)}
}

func toClient(c *pb.Client) job.Client {
	return job.Client{Addr: toAddr(c.GetAddr()), PID: int(c.GetPid()), Key: line(c.GetKey(), MaxLine)}
}

func fromStill(s job.Still) *pb.Still {
	return &pb.Still{Rank: int32(s.Rank), For: durationpb.New(s.For), Beat: s.Beat, Step: s.Step, Does: line(s.Does, MaxLine)}
}

func toStill(s *pb.Still) job.Still {
	return job.Still{
		Rank: int(s.GetRank()), For: s.GetFor().AsDuration(), Beat: s.GetBeat(), Step: s.GetStep(), Does: line(s.GetDoes(), MaxLine),
	}
}

func fromImports(m job.Imports) *pb.Imports {
	if reflect.ValueOf(m).IsZero() {
		return nil
	}
	return &pb.Imports{
		Waited: durationpb.New(m.Waited), Took: durationpb.New(m.Took), Forked: int32(m.Forked), Forking: durationpb.New(m.Forking), Why: Plain(m.Why),
		Modules: Convert(m.Modules[:min(len(m.Modules), job.MaxModules)], fromModule),
	}
}

// fromModule cuts a name that is too long.
func fromModule(m report.Module) *pb.Module {
	return &pb.Module{Name: line(m.Name, MaxLine), Seconds: m.Seconds}
}

func toModule(m *pb.Module) report.Module {
	return report.Module{Name: line(m.GetName(), MaxLine), Seconds: max(0, m.GetSeconds())}
}

func toImports(m *pb.Imports) job.Imports {
	return job.Imports{
		Waited: max(0, m.GetWaited().AsDuration()), Took: max(0, m.GetTook().AsDuration()), Forked: int(m.GetForked()),
		Forking: max(0, m.GetForking().AsDuration()), Why: Plain(m.GetWhy()),
		Modules: Convert(m.GetModules()[:min(len(m.GetModules()), job.MaxModules)], toModule),
	}
}

func fromReplica(r Replica) *pb.Replica {
	q := r.Request
	return &pb.Replica{
		Unit: int32(r.Unit), Attempt: int32(r.Attempt), Id: Plain(q.ID), Call: q.Call, Again: q.Again,
		ShrinkOnly: q.ShrinkOnly, CommitFailures: q.CommitFailures, Member: q.Member,
	}
}

// ToReplica converts a report about a replica, whose group is its unit.
func ToReplica(m *pb.Replica) Replica {
	return Replica{
		Unit: int(m.GetUnit()), Attempt: int(m.GetAttempt()),
		Request: lighthouse.Request{
			Replica: lighthouse.Replica{ID: Plain(m.GetId()), Group: int(m.GetUnit())}, Call: m.GetCall(), Again: m.GetAgain(),
			ShrinkOnly: m.GetShrinkOnly(), CommitFailures: m.GetCommitFailures(), Member: m.GetMember(),
		},
	}
}

func fromCohort(q Cohort) *pb.ReplicaQuorum {
	return &pb.ReplicaQuorum{
		Unit: int32(q.Unit), Attempt: int32(q.Attempt), Replica: q.Replica, Call: q.Call, Id: q.ID, Created: fromTime(q.Created), Members: q.Members,
	}
}

func toCohort(m *pb.ReplicaQuorum) Cohort {
	return Cohort{
		Unit: int(m.GetUnit()), Attempt: int(m.GetAttempt()), Replica: Plain(m.GetReplica()), Call: m.GetCall(),
		ID: m.GetId(), Created: toTime(m.GetCreated()), Members: m.GetMembers(),
	}
}

func fromSaved(e job.Saved) *pb.Saved {
	return &pb.Saved{
		Unit: int32(e.Unit), Attempt: int32(e.Attempt), State: string(e.State), Path: Plain(e.Path), Format: Plain(e.Format), Step: e.Step,
		Bytes: e.Bytes, Shared: e.Shared, Ago: durationpb.New(e.Ago), Took: durationpb.New(e.Took), Why: Plain(e.Why),
	}
}

func toSaved(node string, e *pb.Saved) job.Saved {
	return job.Saved{
		Node: node, Unit: int(e.GetUnit()), Attempt: int(e.GetAttempt()), State: job.SaveState(e.GetState()), Path: e.GetPath(), Format: e.GetFormat(),
		Step: max(0, e.GetStep()), Bytes: max(0, e.GetBytes()), Shared: e.GetShared(), Ago: max(0, e.GetAgo().AsDuration()),
		Took: max(0, e.GetTook().AsDuration()), Why: e.GetWhy(),
	}
}
