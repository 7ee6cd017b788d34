package agent

import (
	"fmt"

	"github.com/golaunch/golaunch/internal/logs"
)

// Output is where the ranks' words go.
type Output struct {
	// Dir takes the files of every attempt, each bounded to Limit bytes; 0 is no limit.
	Dir   *logs.Dir
	Limit int64
	// Console shows the ranks that Shown chooses, each line with the rank and the node before it if Prefix says so for a job of
	// that many ranks.
	Console *logs.Console
	Shown   func(rank int) bool
	Prefix  func(worldSize int) bool
	// Warn is told the first error of each file.
	Warn func(error)
}

func (o Output) open(node string, attempt, rank, worldSize int) (*logs.Rank, error) {
	options := logs.RankOptions{Node: node, Attempt: attempt, Rank: rank, Limit: o.Limit, Warn: o.Warn}
	if o.Shown(rank) {
		options.Console = o.Console
	}
	if o.Prefix(worldSize) {
		options.Prefix = fmt.Sprintf("[r%d %s] ", rank, node)
	}
	return o.Dir.Rank(options)
}
