package wire

import (
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
)

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
