package agent

import (
	"context"
	"errors"
	"os"

	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/endpoint"
	"github.com/golaunch/golaunch/internal/wire/session"
)

// makeEndpoint is for ranks that a controller on another machine may call. Those that an earlier agent has left come to where that one had it, in dir.
func (s *share) makeEndpoint(dir string) {
	if s.err != nil || !s.work.Task.Endpoint || s.agent.Endpoints == nil {
		return
	}
	within, err := ports.Parse(s.work.Task.Ports)
	if err != nil {
		s.err = err
		return
	}
	o := endpoint.Options{UID: os.Geteuid(), GID: os.Getegid(), Addr: s.agent.session.Node.Addr, Ports: within, TLS: s.agent.Endpoints, Dir: dir, Warn: s.agent.Warn}
	if u := s.work.User; u != nil {
		o.UID, o.GID = int(u.UID), int(u.GID)
	}
	s.endpoint, s.err = endpoint.Open(o)
}

// endpointFor is where a number of ranks come.
func (s *share) endpointFor(ranks int) string {
	if s.endpoint == nil {
		return ""
	}
	s.endpoint.Expect(ranks)
	return s.endpoint.Path()
}

func (s *share) closeEndpoint() {
	if s.endpoint == nil {
		return
	}
	if err := s.endpoint.Close(); err != nil {
		s.agent.Warn(err)
	}
}

// openEndpoint answers where a controller reaches the workers of a job here.
func (a *life) openEndpoint(s *share, ask wire.Ask) {
	var open *endpoint.Endpoint
	if s != nil {
		open = s.endpoint
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
