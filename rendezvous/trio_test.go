package rendezvous

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/wire/quorum"
	"github.com/golaunch/golaunch/rendezvous/internal/election"
)

// trio has three voters with disks. They lead in turn.
type trio struct {
	*dice
	lease  time.Duration
	mu     sync.Mutex
	voters []quorum.Voter
	logs   []*quorum.Log
	disks  []*memoryDisk
	// lead is the voter that leads. cut is the voter that is cut off from the others; -1 for none.
	// meanwhile is called after a coordinator was cut off, before the coordinator knows it.
	lead, cut int
	meanwhile func()
}

type memoryDisk struct {
	state   []byte
	changes [][]byte
}

func (d *memoryDisk) Keep(state []byte, changes [][]byte) error {
	if state != nil {
		d.state, d.changes = bytes.Clone(state), nil
	}
	for _, c := range changes {
		d.changes = append(d.changes, bytes.Clone(c))
	}
	return nil
}

func newTrio(d *dice, lease time.Duration) *trio {
	tr := &trio{dice: d, lease: lease, logs: make([]*quorum.Log, 3), lead: -1, cut: -1}
	for i := range 3 {
		tr.voters = append(tr.voters, quorum.Voter{ID: uint64(i + 1), Name: fmt.Sprint("h", i)})
		tr.disks = append(tr.disks, &memoryDisk{})
	}
	for i := range 3 {
		tr.begin(i)
	}
	tr.logs[0].Found(tr.voters[1:]...)
	return tr
}

// begin starts a voter. If the voter has run before, it continues with its earlier state.
func (tr *trio) begin(i int) {
	cfg := quorum.Config{
		Self: tr.voters[i], Disk: tr.disks[i], ElectionTimeout: tr.lease / election.PeerElectionsPerLease,
		Send: func(m quorum.Message) { tr.send(i, m) },
	}
	var err error
	if d := tr.disks[i]; d.state == nil {
		tr.logs[i], err = quorum.Follow(cfg)
	} else {
		tr.logs[i], err = quorum.Resume(cfg, d.state, d.changes)
	}
	if err != nil {
		panic(err)
	}
}

func (tr *trio) send(from int, m quorum.Message) {
	to, b := int(m.To.ID-1), m.Bytes()
	time.AfterFunc(time.Millisecond, func() {
		tr.mu.Lock()
		log, cut := tr.logs[to], tr.cut == from || tr.cut == to
		tr.mu.Unlock()
		if log == nil || cut {
			m.Done(errors.New("no voter runs"))
			return
		}
		log.Step(tr.voters[from], b)
		m.Done(nil)
	})
}

// elect starts the voters that do not run, and waits until a voter leads.
func (tr *trio) elect() *quorum.Term {
	tr.mu.Lock()
	tr.cut = -1
	for i, log := range tr.logs {
		if log == nil {
			tr.begin(i)
		}
	}
	tr.mu.Unlock()
	for {
		for i, log := range tr.logs {
			select {
			case term := <-log.Terms():
				select {
				case <-term.Over():
				default:
					tr.lead = i
					return term
				}
			default:
			}
		}
		time.Sleep(tr.lease / 1000)
	}
}

// lose either cuts the leading coordinator off from the other voters, or kills the voter with the
// coordinator.
func (tr *trio) lose(h *hosted) {
	lead := tr.lead
	if tr.chance(2) {
		tr.mu.Lock()
		tr.cut = lead
		tr.mu.Unlock()
		tr.meanwhile()
		if err := <-h.ended; !errors.Is(err, ErrDeposed) {
			h.t.Errorf("a coordinator that is cut off from the others ends: %v", err)
		}
		return
	}
	h.stop()
	if err := <-h.ended; err != nil {
		h.t.Error(err)
	}
	tr.kill(lead)
}

func (tr *trio) kill(i int) {
	tr.mu.Lock()
	log := tr.logs[i]
	tr.logs[i] = nil
	tr.mu.Unlock()
	if log != nil {
		log.Close()
	}
}

// end ends all voters.
func (tr *trio) end() {
	for i := range tr.logs {
		tr.kill(i)
	}
}
