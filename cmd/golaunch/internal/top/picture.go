package top

import (
	"github.com/golaunch/golaunch/cmd/golaunch/internal/alert"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
)

// Picture is what is shown: a state with a judgement on each job, node and rank.
type Picture struct{ *alert.Picture }

// What a Picture has.
type (
	Job   = alert.Job
	Rank  = alert.Rank
	Node  = alert.Node
	Level = alert.Level
	Alert = alert.Alert
)

// The levels of what is wrong.
const (
	Fine = alert.Fine
	Note = alert.Note
	Warn = alert.Warn
	Bad  = alert.Bad
)

// NewPicture judges all that is known.
func NewPicture(s *view.State) *Picture { return &Picture{alert.NewPicture(s)} }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
