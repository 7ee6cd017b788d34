package wire

import (
	"github.com/golaunch/golaunch/internal/core/lighthouse"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

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
