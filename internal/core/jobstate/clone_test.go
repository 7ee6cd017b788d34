package jobstate

import (
	"reflect"

	"github.com/golaunch/golaunch/internal/core/snapshot"
)

// clone returns a copy of a state, made by writing it down and reading it again.
func (s *State) clone() *State {
	c := &State{}
	if err := snapshot.Decode(snapshot.Encode(s), c); err != nil {
		panic(err)
	}
	return c
}

// lasting returns the state without the newest step's result and without caches.
func (s *State) lasting() State {
	c := *s
	c.step, c.verdicts.rules = step{}, nil
	return c
}

// equals compares the lasting parts of two states.
func (s *State) equals(other *State) bool {
	return reflect.DeepEqual(s.lasting(), other.lasting())
}
