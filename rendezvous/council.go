package rendezvous

import (
	"errors"
	"fmt"
	"time"

	"github.com/golaunch/golaunch/internal/quorum"
)

// council is the coordinator's part in a job whose nodes may each come to coordinate it: some of them, the voters, have what is in
// its journal before anybody sees anything of it. Before there are three nodes there is one voter and no council, and afterwards
// nothing leaves the coordinator, be it an order or the answer to a heartbeat, of which a majority of the voters does not know. So one
// that was replaced, and does not know it, gives no orders and lengthens no lease.
type council struct {
	// reign is nil while nobody else votes.
	reign *quorum.Reign
	// lines are those of the journal that the voters do not have yet, and held is what waits for that.
	lines [][]byte
	held  []func()
	// candidates are nodes that were not asked yet whether they can be reached, asked how many are being asked, and fit those others
	// that vote, or are to.
	candidates     []quorum.Voter
	asked, refused int
	fit            []quorum.Voter
	// want are those that are to vote, this one first.
	want []quorum.Voter
	// grown says that the job is not so young any more that nobody needs to take it over, and growing is nil before it has begun.
	grown   bool
	growing *time.Timer
	// calling says that who listens where the nodes of the job first met is called to it, and elsewhere that the job is given up for
	// another one that has called here; it is not nil then, and final once the coordinator is done.
	calling   bool
	elsewhere *ElsewhereError
	// heirs are those of which people were told that they can take over.
	heirs string
	// parting are the links of voters that have left the job, and keep the log until others do in their place.
	parting map[*link]string
}

// ErrDeposed ends a coordinator in whose place another one may be.
var ErrDeposed = errors.New("this node does not coordinate the job any more: a majority of those that could take over does not answer it")

// maxBatch is how many messages are taken in at a time, at most, and what they cause goes to the voters together.
const maxBatch = 256

// then does something that others can see, once the voters and the disk know why.
func (c *Coordinator) then(f func()) {
	if c.reign == nil {
		c.disk.then(f)
		return
	}
	c.vouch(f)
}

// vouch does what lengthens a lease, for which the voters alone must know this coordinator.
func (c *Coordinator) vouch(f func()) {
	if c.reign == nil {
		f()
		return
	}
	c.held = append(c.held, f)
}

// over is closed when another coordinator may be there.
func (c *Coordinator) over() <-chan struct{} {
	if c.reign == nil {
		return nil
	}
	return c.reign.Over()
}

// settle has the voters know what has happened, and lets out what follows from it.
func (c *Coordinator) settle() error {
	for c.reign != nil && len(c.held)+len(c.lines) > 0 {
		c.gather()
		lines, held := c.lines, c.held
		c.lines, c.held = nil, nil
		if err := c.reign.Commit(bundle(lines)...); err != nil {
			return fmt.Errorf("%w (%w)", ErrDeposed, err)
		}
		for _, f := range held {
			f()
		}
	}
	return nil
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

// maxEntry bounds what is sent to the voters at a time, in bytes, unless one line alone is longer.
const maxEntry = 256 << 10

// bundle joins lines to entries.
func bundle(lines [][]byte) (entries [][]byte) {
	size := maxEntry
	for _, line := range lines {
		if size += len(line); size > maxEntry {
			entries, size = append(entries, nil), len(line)
		}
		last := &entries[len(entries)-1]
		*last = append(*last, line...)
	}
	return entries
}
