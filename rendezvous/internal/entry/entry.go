// Package entry encodes and decodes the entries of a coordinator's log. Entries contain the
// messages of agents and clients.
package entry

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/golaunch/golaunch/internal/core/capacity"
	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/lighthouse"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
)

// Write encodes an entry. It panics for an event that no coordinator creates.
func Write(e replica.Entry) []byte {
	m := fromEntry(e)
	m.At = timestamppb.New(e.At)
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("rendezvous: %T cannot be written: %v", m.GetBody(), err)) // the receiver of each text has made it valid UTF-8
	}
	return b
}

func fromEntry(e replica.Entry) *pb.Entry {
	switch {
	case e.Founded != nil:
		return &pb.Entry{Body: &pb.Entry_Founded{Founded: &pb.Founded{Format: e.Founded.Format, Epoch: e.Founded.Epoch}}}
	case e.Submitted != nil:
		s := joined(wire.FromSubmission(*e.Submitted))
		s.Protocol, s.Version = 0, "" // only a client's connection needs them
		return &pb.Entry{Submitter: e.Submitted.Submitter, User: e.Submitted.User, Body: &pb.Entry_Submitted{Submitted: s}}
	case e.Admitted != nil:
		return &pb.Entry{Body: &pb.Entry_Admitted{Admitted: &pb.Admitted{
			Node: wire.FromNode(e.Admitted.Node), Instance: e.Admitted.Instance, Patience: durationpb.New(e.Admitted.Patience),
		}}}
	case e.Capacity != nil:
		return fromCapacity(e.Capacity)
	}
	switch ev := e.Event.(type) {
	case cluster.Joined:
		return &pb.Entry{Body: &pb.Entry_Joined{Joined: wire.FromNode(ev.Node)}}
	case cluster.Lost:
		return &pb.Entry{Body: &pb.Entry_Lost{Lost: &pb.Lost{Node: ev.Node, Why: wire.Plain(ev.Why)}}}
	case cluster.Freed:
		return &pb.Entry{Body: &pb.Entry_Freed{Freed: &pb.FreedGPUs{
			Node: ev.Node, Gpus: wire.Convert(ev.GPUs, func(index int) int32 { return int32(index) }),
		}}}
	case cluster.Rejoined:
		return &pb.Entry{Body: &pb.Entry_Back{Back: &pb.Back{Node: ev.Node}}}
	case cluster.Drain:
		d := &pb.Drained{Node: ev.Node}
		if ev.Leaves != nil {
			d.Leaving = &pb.Draining{Within: durationpb.New(ev.Leaves.Within), Why: wire.Plain(ev.Leaves.Why)}
		}
		return &pb.Entry{Body: &pb.Entry_Drained{Drained: d}}
	case cluster.Avoid:
		return &pb.Entry{Body: &pb.Entry_Avoided{Avoided: &pb.Avoided{Node: ev.Node, Why: new(wire.Plain(ev.Why))}}}
	case cluster.Readmit:
		return &pb.Entry{Body: &pb.Entry_Avoided{Avoided: &pb.Avoided{Node: ev.Node}}}
	case cluster.Limited:
		return &pb.Entry{Body: &pb.Entry_Limited{Limited: &pb.Limited{Limits: fromLimits(ev.Limits)}}}
	case cluster.Happened:
		m := fromHappened(ev.Job, ev.Event)
		m.About = ev.Job
		return m
	default: // a submission has an entry of its own
	}
	panic(fmt.Sprintf("rendezvous: no coordinator has a %T", e.Event))
}

func fromCapacity(ev capacity.Event) *pb.Entry {
	switch ev := ev.(type) {
	case capacity.Requested:
		return &pb.Entry{Body: &pb.Entry_CapacityRequested{CapacityRequested: &pb.CapacityRequested{
			Kind: ev.Kind, Nodes: int32(ev.Nodes), Why: wire.Plain(ev.Why),
		}}}
	case capacity.Released:
		return &pb.Entry{Body: &pb.Entry_CapacityReleased{CapacityReleased: &pb.CapacityReleased{
			Tag: ev.Tag, Code: string(ev.Code), Why: wire.Plain(ev.Why),
		}}}
	case capacity.Failed:
		return &pb.Entry{Body: &pb.Entry_CapacityFailed{CapacityFailed: &pb.CapacityFailed{Tag: ev.Tag, Why: wire.Plain(ev.Why)}}}
	case capacity.Gone:
		return &pb.Entry{Body: &pb.Entry_CapacityGone{CapacityGone: &pb.CapacityGone{Tag: ev.Tag, Why: wire.Plain(ev.Why)}}}
	}
	panic(fmt.Sprintf("rendezvous: no coordinator has a %T", ev))
}

func fromHappened(id string, ev job.Event) *pb.Entry {
	switch ev := ev.(type) {
	case job.Elapsed:
		return &pb.Entry{Body: &pb.Entry_Elapsed{Elapsed: &pb.Elapsed{Unit: int32(ev.Unit), Attempt: int32(ev.Attempt)}}}
	case job.Met:
		g := &pb.Gathered{Node: ev.Node, Unit: int32(ev.Unit), Attempt: int32(ev.Attempt), Why: wire.Plain(ev.Why)}
		if c := ev.Complete; c != nil {
			g.Last, g.Ago = int32(c.Last), durationpb.New(c.Ago)
		}
		return &pb.Entry{Body: &pb.Entry_Gathered{Gathered: g}}
	case job.Cohort:
		return &pb.Entry{Body: &pb.Entry_Formed{Formed: fromFormed(ev)}}
	case job.TimedOut:
		return &pb.Entry{Body: &pb.Entry_TimedOut{TimedOut: &pb.TimedOut{Kind: string(ev.Kind), Seq: int32(ev.Seq)}}}
	case job.Cancel:
		return &pb.Entry{Body: &pb.Entry_Cancelled{Cancelled: &pb.Cancelled{
			Code: int32(ev.Code), Why: wire.Plain(ev.Why), Ending: string(ev.Ending), Within: durationpb.New(ev.Within), Loose: ev.Loose,
			Signal: int32(ev.Signal), Once: ev.Once, AfterSave: ev.AfterSave,
		}}}
	default: // agents report the other events
	}
	if report := wire.FromEvent("", ev); report != nil {
		return &pb.Entry{Body: &pb.Entry_Reported{Reported: &pb.Reported{Node: nodeOf(ev), Report: report}}}
	}
	panic(fmt.Sprintf("rendezvous: job %s takes no %T", id, ev))
}

// fromLimits returns the limits with users sorted by name, and their priorities in order.
func fromLimits(all cluster.Limits) (list []*pb.Limit) {
	for _, user := range slices.Sorted(maps.Keys(all)) {
		for _, p := range cluster.Priorities {
			if gpus, limited := all[user][p]; limited {
				list = append(list, &pb.Limit{User: user, Priority: string(p), Gpus: int32(gpus)})
			}
		}
	}
	return list
}

func toLimits(list []*pb.Limit) cluster.Limits {
	if len(list) == 0 {
		return nil
	}
	all := cluster.Limits{}
	for _, l := range list {
		if all[l.GetUser()] == nil {
			all[l.GetUser()] = map[cluster.Priority]int{}
		}
		all[l.GetUser()][cluster.Priority(l.GetPriority())] = int(l.GetGpus())
	}
	return all
}

// nodeOf returns the node that reports an event.
func nodeOf(ev job.Event) string {
	switch ev := ev.(type) {
	case job.Prepared:
		return ev.Node
	case job.Reached:
		return ev.Node
	case job.Started:
		return ev.Node
	case job.Ready:
		return ev.Node
	case job.Catching:
		return ev.Node
	case job.Stalled:
		return ev.Node
	case job.Stepped:
		return ev.Node
	case job.Saved:
		return ev.Node
	case job.Exited:
		return ev.Node
	case job.Stopped:
		return ev.Node
	default: // no node reports these
		return ""
	}
}

// Read decodes an entry. It refuses entries that this version would not have written.
func Read(b []byte) (e replica.Entry, err error) {
	var m pb.Entry
	if err := proto.Unmarshal(b, &m); err != nil {
		return e, fmt.Errorf("cannot read an entry: %w", err)
	}
	e = toEntry(&m)
	if unknown(m.ProtoReflect()) || e == (replica.Entry{}) {
		return e, replica.ErrVersion
	}
	e.At = m.GetAt().AsTime()
	return e, nil
}

func toEntry(m *pb.Entry) (e replica.Entry) {
	happened := func(ev job.Event) replica.Entry {
		if ev == nil {
			return e
		}
		return replica.Entry{Event: cluster.Happened{Job: m.GetAbout(), Event: ev}}
	}
	switch b := m.GetBody().(type) {
	case *pb.Entry_Founded:
		e.Founded = &replica.Founded{Format: b.Founded.GetFormat(), Epoch: b.Founded.GetEpoch()}
	case *pb.Entry_Submitted:
		s := wire.ToSubmission(b.Submitted)
		s.Submitter, s.User = m.Submitter, m.GetUser()
		e.Submitted = &s
	case *pb.Entry_Admitted:
		e.Admitted = &replica.Member{
			Node: wire.ToNode(b.Admitted.GetNode()), Instance: b.Admitted.GetInstance(), Patience: b.Admitted.GetPatience().AsDuration(),
		}
	case *pb.Entry_Joined:
		e.Event = cluster.Joined{Node: wire.ToNode(b.Joined)}
	case *pb.Entry_Lost:
		e.Event = cluster.Lost{Node: b.Lost.GetNode(), Why: b.Lost.GetWhy()}
	case *pb.Entry_Freed:
		e.Event = cluster.Freed{Node: b.Freed.GetNode(), GPUs: wire.Convert(b.Freed.GetGpus(), func(index int32) int { return int(index) })}
	case *pb.Entry_Back:
		e.Event = cluster.Rejoined{Node: b.Back.GetNode()}
	case *pb.Entry_Drained:
		d := cluster.Drain{Node: b.Drained.GetNode()}
		if l := b.Drained.GetLeaving(); l != nil {
			d.Leaves = &job.Draining{Node: d.Node, Within: l.GetWithin().AsDuration(), Why: l.GetWhy()}
		}
		e.Event = d
	case *pb.Entry_Avoided:
		e.Event = cluster.Readmit{Node: b.Avoided.GetNode()}
		if b.Avoided.Why != nil {
			e.Event = cluster.Avoid{Node: b.Avoided.GetNode(), Why: b.Avoided.GetWhy()}
		}
	case *pb.Entry_Limited:
		e.Event = cluster.Limited{Limits: toLimits(b.Limited.GetLimits())}
	case *pb.Entry_CapacityRequested:
		r := b.CapacityRequested
		e.Capacity = capacity.Requested{Kind: r.GetKind(), Nodes: int(r.GetNodes()), Why: r.GetWhy()}
	case *pb.Entry_CapacityReleased:
		r := b.CapacityReleased
		e.Capacity = capacity.Released{Tag: r.GetTag(), Code: capacity.Code(r.GetCode()), Why: r.GetWhy()}
	case *pb.Entry_CapacityFailed:
		e.Capacity = capacity.Failed{Tag: b.CapacityFailed.GetTag(), Why: b.CapacityFailed.GetWhy()}
	case *pb.Entry_CapacityGone:
		e.Capacity = capacity.Gone{Tag: b.CapacityGone.GetTag(), Why: b.CapacityGone.GetWhy()}
	case *pb.Entry_Elapsed:
		return happened(job.Elapsed{Unit: int(b.Elapsed.GetUnit()), Attempt: int(b.Elapsed.GetAttempt())})
	case *pb.Entry_Gathered:
		g := b.Gathered
		met := job.Met{Node: g.GetNode(), Unit: int(g.GetUnit()), Attempt: int(g.GetAttempt()), Why: g.GetWhy()}
		if g.GetAgo() != nil {
			met.Complete = &job.Complete{Last: int(g.GetLast()), Ago: g.GetAgo().AsDuration()}
		}
		return happened(met)
	case *pb.Entry_Formed:
		return happened(toFormed(b.Formed))
	case *pb.Entry_TimedOut:
		return happened(job.TimedOut{Kind: job.AlarmKind(b.TimedOut.GetKind()), Seq: int(b.TimedOut.GetSeq())})
	case *pb.Entry_Cancelled:
		c := b.Cancelled
		return happened(job.Cancel{
			Code: int(c.GetCode()), Why: c.GetWhy(), Ending: report.Ending(c.GetEnding()), Within: c.GetWithin().AsDuration(), Loose: c.GetLoose(),
			Signal: int(c.GetSignal()), Once: c.GetOnce(), AfterSave: c.GetAfterSave(),
		})
	case *pb.Entry_Reported:
		return happened(wire.ToEvent(b.Reported.GetNode(), b.Reported.GetReport()))
	}
	return e
}

// unknown reports whether a message, or a message in it, has a field that this version does not
// know.
func unknown(m protoreflect.Message) bool {
	if len(m.GetUnknown()) > 0 {
		return true
	}
	found := false
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					found = found || unknown(v.Message())
					return !found
				})
			}
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				found = found || unknown(v.List().Get(i).Message())
			}
		default:
			found = found || unknown(v.Message())
		}
		return !found
	})
	return found
}

func fromFormed(q job.Cohort) *pb.Formed {
	return &pb.Formed{
		Id: q.ID, Why: wire.Plain(q.Why),
		Members: wire.Convert(q.Members, func(r lighthouse.Replica) *pb.Replicas { return &pb.Replicas{Id: r.ID, Group: int32(r.Group)} }),
	}
}

func toFormed(m *pb.Formed) job.Cohort {
	return job.Cohort{
		ID: m.GetId(), Why: m.GetWhy(),
		Members: wire.Convert(m.GetMembers(), func(r *pb.Replicas) lighthouse.Replica {
			return lighthouse.Replica{ID: r.GetId(), Group: int(r.GetGroup())}
		}),
	}
}

// joined merges the messages of a submission into one, for the log.
func joined(parts []*pb.Submission) *pb.Submission {
	for _, part := range parts[1:] {
		proto.Merge(parts[0], part)
	}
	return parts[0]
}
