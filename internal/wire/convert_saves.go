package wire

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/golaunch/golaunch/internal/core/job"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
)

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

func fromSaves(s report.Saves) *pb.Saves {
	return &pb.Saves{Last: optional(s.Last, fromSave), InFlight: optional(s.InFlight, fromSave), Every: s.Every, AtRisk: s.AtRisk, AfterNotice: s.AfterNotice}
}

func toSaves(s *pb.Saves) report.Saves {
	return report.Saves{
		Last: present(s.GetLast(), toSave), InFlight: present(s.GetInFlight(), toSave), Every: s.GetEvery(), AtRisk: s.GetAtRisk(),
		AfterNotice: s.GetAfterNotice(),
	}
}

func fromSave(s report.Save) *pb.Save {
	return &pb.Save{Path: Plain(s.Path), Format: Plain(s.Format), Step: s.Step, Bytes: s.Bytes, Began: fromTime(s.Began), Ended: fromTime(s.Ended)}
}

func toSave(s *pb.Save) report.Save {
	return report.Save{
		Path: s.GetPath(), Format: s.GetFormat(), Step: s.GetStep(), Bytes: s.GetBytes(), Began: toTime(s.GetBegan()), Ended: toTime(s.GetEnded()),
	}
}
