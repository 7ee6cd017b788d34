package rendezvous

import (
	"errors"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/quorum"
	"github.com/golaunch/golaunch/rendezvous/internal/log"
)

// leadership is the coordinator's part in a job whose nodes may each come to coordinate it: some of them, the voters, have what is in
// its log before anybody sees anything of it. Before there are three nodes there is one voter and no log among them, and afterwards
// nothing leaves the coordinator, be it an order or the answer to a heartbeat, of which a majority of the voters does not know. So one
// that was replaced, and does not know it, gives no orders and lengthens no lease.
type leadership struct {
	// term is nil while nobody else votes.
	term *quorum.Term
	// unasked are nodes that were not asked yet whether they can be reached, asked how many are being asked, and reachable those others
	// that vote, or are to.
	unasked        nominees
	asked, refused int
	// rest is how long nodes were left alone for the last time, of which too many in a row could not be reached.
	rest      time.Duration
	reachable []quorum.Voter
	// want are those that are to vote, this one first.
	want []quorum.Voter
	// established says that the job is not so young any more that nobody needs to take it over, and establishing is nil before it has begun.
	established  bool
	establishing *time.Timer
	// inviting says that who listens where the nodes of the job first met is invited to it, and elsewhere that the job is given up for
	// another one that has invited this one; it is not nil then, and final once the coordinator is done.
	inviting  bool
	elsewhere *wire.ElsewhereError
	// successors are those of which people were told that they can take over.
	successors string
	// peers are those of a cluster that said who they are, by address, and absent those that do not answer.
	peers  map[string]quorum.Voter
	absent map[string]bool
	// parting are the links of voters that have left the job, and keep the log until others do in their place.
	parting map[*link]bool
}

// ErrDeposed ends a coordinator in whose place another one may be.
var ErrDeposed = errors.New("this node does not coordinate the job any more: a majority of those that could take over does not answer it")

// maxBatch is how many messages are taken in at a time, at most, and what they cause goes to the voters together.
const maxBatch = 256

// ousted is closed when another coordinator may be there.
func (c *Coordinator) ousted() <-chan struct{} {
	if c.term == nil {
		return nil
	}
	return c.term.Over()
}

// gather takes in what waits, so that one round of votes is for all of it.
func (c *Coordinator) gather() {
	for range maxBatch {
		select {
		case f := <-c.inbox:
			f()
		default:
			return
		}
	}
}

// voters keep a log.
type voters struct{ term *quorum.Term }

// Shared says that another of them may come to lead.
func (v voters) Shared() bool { return true }

// Confirm makes sure of the lead.
func (v voters) Confirm(done func(error)) { v.term.Confirm(done) }

// Keep makes one entry of a round.
func (v voters) Keep(r log.Round, done func(error)) {
	if r.Snapshot != nil {
		v.term.Snapshot(r.Snapshot, func(err error) {
			if err != nil || len(r.Entries) == 0 {
				done(err)
			}
		})
	}
	if len(r.Entries) > 0 {
		v.term.Propose([][]byte{log.Join(r.Entries)}, done)
	}
}

// pastOf is what voters have kept.
func pastOf(t *quorum.Term) (log.Past, error) {
	p := log.Past{Snapshot: t.Past.Snapshot}
	for _, round := range t.Past.Entries {
		entries, ok := log.Split(round)
		if !ok {
			return p, errors.New("cannot take the job over: what the voters have kept makes no sense")
		}
		p.Entries = append(p.Entries, entries...)
		p.Size += len(round)
	}
	return p, nil
}

// succeed goes on with a job in the place of a coordinator that was lost.
func (c *Coordinator) succeed() {
	if c.term == nil || c.sole == nil {
		return
	}
	c.reachable, c.established = slices.Clone(c.term.Voters[1:]), true
	time.AfterFunc(c.patience(), func() { c.post(c.replaceVoters) })
	c.elect()
	c.invite()
}

// replaceVoters has others vote in the place of voters that have left, once those are back that will be.
func (c *Coordinator) replaceVoters() {
	for _, v := range slices.Clone(c.reachable) {
		if c.members[v.Name] == nil {
			c.replaceVoter(v.Name)
		}
	}
}
