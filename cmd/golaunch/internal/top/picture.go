package top

import (
	"github.com/golaunch/golaunch/cmd/golaunch/internal/concern"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
)

// Picture is what is shown: a state with a judgement on each job, node and rank.
type Picture struct{ *concern.Picture }

// What a Picture has.
type (
	Job     = concern.Job
	Rank    = concern.Rank
	Node    = concern.Node
	Level   = concern.Level
	Concern = concern.Concern
)

// The levels of what is wrong.
const (
	Fine = concern.Fine
	Note = concern.Note
	Warn = concern.Warn
	Bad  = concern.Bad
)

// NewPicture judges all that is known.
func NewPicture(s *view.State) *Picture { return &Picture{concern.NewPicture(s)} }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
