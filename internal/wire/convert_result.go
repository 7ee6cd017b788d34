package wire

import (
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
)

func fromResult(r report.Result) *pb.Result {
	return &pb.Result{
		Code: int32(r.Code), Ending: string(r.Ending), Reason: Plain(r.Reason), Cause: optional(r.Cause, fromFailure),
		Attempts: int32(r.Attempts), Restarts: int32(r.Restarts), Goodput: optional(r.Goodput, fromGoodput),
		Start: optional(r.Start, fromStart), Saves: optional(r.Saves, fromSaves),
	}
}

func ToResult(r *pb.Result) report.Result {
	return report.Result{
		Code: int(r.GetCode()), Ending: report.Ending(r.GetEnding()), Reason: r.GetReason(), Cause: present(r.GetCause(), toFailure),
		Attempts: int(r.GetAttempts()), Restarts: int(r.GetRestarts()), Goodput: present(r.GetGoodput(), toGoodput),
		Start: present(r.GetStart(), toStart), Saves: present(r.GetSaves(), toSaves),
	}
}

func fromFailure(f report.Failure) *pb.Failure {
	return &pb.Failure{
		Node: f.Node, Rank: int32(f.Rank), Gpu: optional(f.GPU, fromReportGPU), Attempt: int32(f.Attempt),
		Exit: fromExit(f.Exit), At: fromTime(f.At), Lived: durationpb.New(f.Lived), Further: int32(f.Further), Step: f.Step, Kernel: []byte(tail(f.Kernel)),
		Why: Plain(f.Why), Tail: []byte(tail(f.Tail)), Traceback: []byte(tail(f.Traceback)), Hung: f.Hung,
		Verdict: fromVerdict(f.Verdict),
	}
}

func fromVerdict(v report.Verdict) *pb.Verdict {
	if v == (report.Verdict{}) {
		return nil
	}
	return &pb.Verdict{
		Action: string(v.Action), Cause: line(v.Cause, MaxLine), Title: Plain(v.Title), Quote: Plain(v.Quote), From: string(v.From),
		Line: int32(v.Line), Victim: v.Victim, Remedy: Plain(v.Remedy),
	}
}

func toVerdict(v *pb.Verdict) report.Verdict {
	return report.Verdict{
		Action: report.Action(v.GetAction()), Cause: v.GetCause(), Title: v.GetTitle(), Quote: v.GetQuote(), From: report.Source(v.GetFrom()),
		Line: int(v.GetLine()), Victim: v.GetVictim(), Remedy: v.GetRemedy(),
	}
}

func toFailure(f *pb.Failure) report.Failure {
	return report.Failure{
		Node: f.GetNode(), Rank: int(f.GetRank()), GPU: present(f.GetGpu(), toReportGPU), Attempt: int(f.GetAttempt()),
		Exit: toExit(f.GetExit()), At: toTime(f.GetAt()), Lived: f.GetLived().AsDuration(), Further: int(f.GetFurther()), Step: f.GetStep(),
		Kernel: string(tail(f.GetKernel())), Why: f.GetWhy(), Tail: string(tail(f.GetTail())), Traceback: string(tail(f.GetTraceback())),
		Hung: f.GetHung(), Verdict: toVerdict(f.GetVerdict()),
	}
}

func fromExit(e report.Exit) *pb.Exit {
	return &pb.Exit{Code: int32(e.Code), Signal: int32(e.Signal), Oom: e.OOM, Spawn: Plain(e.Spawn)}
}

func toExit(e *pb.Exit) report.Exit {
	return report.Exit{Code: int(e.GetCode()), Signal: int(e.GetSignal()), OOM: e.GetOom(), Spawn: Plain(e.GetSpawn())}
}

func fromGoodput(r report.Goodput) *pb.Goodput {
	return &pb.Goodput{
		Unit: Plain(r.Unit), Goodput: r.Goodput, Hours: r.Hours, Training: r.Training, Lost: r.Lost, Starting: r.Starting,
		Stopping: r.Stopping, Backoff: r.Backoff, Waiting: r.Waiting, Importing: r.Importing, Interruptions: int32(r.Interruptions),
		Costs: Convert(r.Costs, func(c report.Cost) *pb.Cost {
			return &pb.Cost{Cause: Plain(c.Cause), Node: c.Node, Interruptions: int32(c.Interruptions), Hours: c.Hours, Lost: c.Lost}
		}),
	}
}

func toGoodput(r *pb.Goodput) report.Goodput {
	return report.Goodput{
		Unit: r.GetUnit(), Goodput: r.GetGoodput(), Hours: r.GetHours(), Training: r.GetTraining(), Lost: r.GetLost(),
		Starting: r.GetStarting(), Stopping: r.GetStopping(), Backoff: r.GetBackoff(), Waiting: r.GetWaiting(), Importing: r.GetImporting(),
		Interruptions: int(r.GetInterruptions()),
		Costs: Convert(r.GetCosts(), func(c *pb.Cost) report.Cost {
			return report.Cost{
				Cause: c.GetCause(), Node: c.GetNode(), Interruptions: int(c.GetInterruptions()), Hours: c.GetHours(), Lost: c.GetLost(),
			}
		}),
	}
}

func fromStart(s report.Start) *pb.Startup {
	return &pb.Startup{
		Attempt: int32(s.Attempt), Modules: Convert(s.Modules, fromModule),
		Phases: Convert(s.Phases, func(p report.StartPhase) *pb.StartPhase {
			return &pb.StartPhase{Phase: string(p.Phase), Seconds: p.Seconds, Node: p.Node, Rank: optional(p.Rank, func(n int) *int32 { return new(int32(n)) })}
		}),
	}
}

func toStart(s *pb.Startup) report.Start {
	return report.Start{
		Attempt: int(s.GetAttempt()), Modules: Convert(s.GetModules(), toModule),
		Phases: Convert(s.GetPhases(), func(p *pb.StartPhase) report.StartPhase {
			return report.StartPhase{
				Phase: report.Phase(p.GetPhase()), Seconds: p.GetSeconds(), Node: p.GetNode(), Rank: present(p.Rank, func(n *int32) int { return int(*n) }),
			}
		}),
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
