package agent

import (
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/placement"
)

// Output is where the ranks' words go.
type Output struct {
	// Dir takes the files of every attempt.
	Dir *logs.Dir
	// Of says how the words of a rank are kept and shown. Several goroutines call it.
	Of func(Speaker) logs.RankOptions
}

// Speaker is a rank of one attempt, on a node.
type Speaker struct {
	Node                     string
	Attempt, Rank, LocalRank int
	WorldSize                int
}

func (u *unit) output(b placement.Bundle) (*logs.Rank, error) {
	return u.share.work.Output.Dir.Rank(u.outputOptions(b))
}

func (u *unit) outputOptions(b placement.Bundle) logs.RankOptions {
	o := u.share.work.Output.Of(Speaker{
		Node: u.agent.session.Node.Name, Attempt: u.order.Attempt,
		Rank: b.Rank, LocalRank: b.LocalRank, WorldSize: u.order.World.WorldSize,
	})
	o.Exact = u.agent.keeper != nil
	return o
}
