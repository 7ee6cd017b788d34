package rendezvous

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// watcher is a client that follows a job. updates is closed when the client reads too slowly.
type watcher struct {
	job      *trackedJob
	accepted *pb.Accepted
	updates  chan wire.Update
	owner    bool
}

// maxUpdates bounds the updates that wait for one watcher.
const maxUpdates = 256

// watch sends a client the present state of a job, and then every decision. With owner, the job
// ends once the client and all other owners have gone, except if the job is detached.
func (c *Coordinator) watch(j *trackedJob, owner bool) *watcher {
	w := &watcher{
		job: j, updates: make(chan wire.Update, maxUpdates), owner: owner && !j.Detached,
		accepted: &pb.Accepted{Job: j.Job.ID, Lease: durationpb.New(c.cfg.Lease), Detached: j.Detached},
	}
	if w.owner {
		j.owners++
		j.close()
		j.orphanTimer = nil
	}
	if j.Reason != "" {
		w.updates <- wire.Update{Decision: &report.Decision{At: time.Now(), Reason: j.Reason}}
	}
	if j.Granted != nil {
		w.updates <- wire.Update{Granted: j.Granted}
	}
	if j.Result != nil {
		w.updates <- wire.Update{Result: j.Result}
	}
	j.watchers[w] = struct{}{}
	return w
}

// tell sends an update to all watchers once the log has stored the entries that led to it. It drops
// a watcher that reads too slowly.
func (c *Coordinator) tell(j *trackedJob, u wire.Update) {
	c.log.Then(func() {
		for w := range j.watchers {
			select {
			case w.updates <- u:
			default:
				close(w.updates)
				delete(j.watchers, w)
			}
		}
	})
}

// unwatch forgets a client. If the client was the last owner, the job ends: at once if the client
// has died, and otherwise after a lease in which no owner has come.
func (c *Coordinator) unwatch(w *watcher, died bool) {
	j := w.job
	delete(j.watchers, w)
	if !w.owner {
		return
	}
	if j.owners--; j.owners == 0 {
		patience := c.cfg.Lease
		if died {
			patience = 0
		}
		c.startOrphanTimer(j, patience)
	}
}

type updateStream interface {
	Send(*pb.Update) error
	Context() context.Context
}

// follow sends updates until the job is over.
func (s clientService) follow(stream updateStream, w *watcher) error {
	conn := server.ConnOf(stream.Context())
	defer func() {
		died := conn.ClosedInOrder()
		s.c.post(func() { s.c.unwatch(w, died) })
	}()
	if err := stream.Send(&pb.Update{Body: &pb.Update_Accepted{Accepted: w.accepted}}); err != nil {
		return err
	}
	heartbeat := time.NewTicker(s.c.cfg.Lease / wire.NoticesPerLease)
	defer heartbeat.Stop()
	leads := make(chan struct{}, 1)
	for {
		select {
		case <-heartbeat.C: // a coordinator that no longer leads sends no heartbeat
			s.c.post(func() {
				s.c.log.Vouch(func() {
					select {
					case leads <- struct{}{}:
					default:
					}
				})
			})
		case <-leads:
			if err := stream.Send(&pb.Update{}); err != nil {
				return err
			}
		case u, ok := <-w.updates:
			if last, err := sendUpdate(stream, u, ok); last || err != nil {
				return err
			}
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-s.c.done:
			return s.sendRest(stream, w)
		}
	}
}

// sendRest sends the updates that were queued before the coordinator ended.
func (s clientService) sendRest(stream updateStream, w *watcher) error {
	for {
		select {
		case u, ok := <-w.updates:
			if last, err := sendUpdate(stream, u, ok); last || err != nil {
				return err
			}
		default:
			return s.c.endError()
		}
	}
}

// sendUpdate sends one update if ok is true. last says that it was the last update.
func sendUpdate(stream updateStream, u wire.Update, ok bool) (last bool, err error) {
	if !ok {
		return true, status.Error(codes.Aborted, "this client does not read its messages")
	}
	for m := range wire.FromUpdate(u) {
		if err := stream.Send(m); err != nil {
			return true, err
		}
	}
	return u.Result != nil, nil
}
