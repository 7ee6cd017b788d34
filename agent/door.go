package agent

import (
	"context"
	"errors"
	"os"

	"github.com/golaunch/golaunch/internal/door"
	"github.com/golaunch/golaunch/internal/session"
	"github.com/golaunch/golaunch/internal/wire"
)

// makeDoor is for ranks that a controller on another machine may call.
func (s *share) makeDoor() {
	if s.err != nil || !s.work.Task.Door || s.agent.Doors == nil {
		return
	}
	o := door.Options{UID: os.Geteuid(), GID: os.Getegid(), Addr: s.agent.session.Node.Addr, TLS: s.agent.Doors}
	if u := s.work.User; u != nil {
		o.UID, o.GID = int(u.UID), int(u.GID)
	}
	s.door, s.err = door.Open(o)
}

func (s *share) doorPath() string {
	if s.door == nil {
		return ""
	}
	return s.door.Path()
}

func (s *share) closeDoor() {
	if s.door == nil {
		return
	}
	if err := s.door.Close(); err != nil {
		s.agent.Warn(err)
	}
}

// openDoor answers where a controller reaches the workers of a job here.
func (a *life) openDoor(s *share, ask wire.Ask) {
	var open *door.Door
	if s != nil {
		open = s.door
	}
	a.readers.Go(func() {
		a.tell(session.Deliver(a.reading, ask, once(func(ctx context.Context) (wire.Answer, error) {
			if open == nil {
				return wire.Answer{}, errors.New("there are no workers of that job here that a controller could call")
			}
			at, err := open.Listen(ctx)
			return wire.Answer{Facts: []byte(at.String())}, err
		})))
	})
}
