package agent

import (
	"context"
	"errors"
	"os"

	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/endpoint"
)

// openEndpoint is for ranks that a controller on another machine may call. Ranks of an earlier
// agent connect in that agent's directory; dir is empty without one.
func (j *jobOnNode) openEndpoint(dir string) {
	if j.err != nil || !j.work.Task.Endpoint || j.node.Endpoints == nil {
		return
	}
	within, err := ports.Parse(j.work.Task.Ports)
	if err != nil {
		j.err = err
		return
	}
	o := endpoint.Options{
		UID: os.Geteuid(), GID: os.Getegid(), Addr: j.node.session.Node.Addr, Ports: within, TLS: j.node.Endpoints, Dir: dir, Warn: j.node.Warn,
	}
	if u := j.work.User; u != nil {
		o.UID, o.GID = int(u.UID), int(u.GID)
	}
	j.endpoint, j.err = endpoint.Open(o)
}

// endpointFor returns where a number of ranks connect.
func (j *jobOnNode) endpointFor(count int) string {
	if j.endpoint == nil {
		return ""
	}
	j.endpoint.Expect(count)
	return j.endpoint.Path()
}

func (j *jobOnNode) closeEndpoint() {
	if j.endpoint == nil {
		return
	}
	if err := j.endpoint.Close(); err != nil {
		j.node.Warn(err)
	}
}

// listenEndpoint answers where a controller reaches the workers of a job, which may be nil.
func (j *jobOnNode) listenEndpoint() nextFunc {
	if j == nil || j.endpoint == nil {
		return func(context.Context) (wire.Answer, error) {
			return wire.Answer{}, errors.New("no workers of that job run on this node")
		}
	}
	open := j.endpoint
	return func(ctx context.Context) (wire.Answer, error) {
		at, err := open.Listen(ctx)
		return wire.Answer{Facts: []byte(at.String())}, err
	}
}
