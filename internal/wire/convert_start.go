package wire

import (
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
)

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
