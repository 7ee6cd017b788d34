package top

import (
	"github.com/golaunch/golaunch/cmd/golaunch/internal/alert"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
)

// Picture is the state that is shown, with an alert for each job, node and rank.
type Picture struct{ *alert.Picture }

// The parts of a Picture.
type (
	Job   = alert.Job
	Rank  = alert.Rank
	Node  = alert.Node
	Level = alert.Level
	Alert = alert.Alert
)

// The levels of problems.
const (
	Fine = alert.Fine
	Note = alert.Note
	Warn = alert.Warn
	Bad  = alert.Bad
)

// NewPicture judges a state.
func NewPicture(s *view.State) *Picture { return &Picture{alert.NewPicture(s)} }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
