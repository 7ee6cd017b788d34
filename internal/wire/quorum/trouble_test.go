package quorum

import (
	"flag"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/mutants"
)

// TestWorld checks that a new leader always follows. Voters die and are replaced. The network
// loses, duplicates and reorders messages, and splits. Snapshots replace the past often or rarely.
func TestWorld(t *testing.T) {
	for seed := range uint64(mutants.Worlds(200)) {
		if *worldSeed != 0 && *worldSeed != seed+1 {
			continue
		}
		sound := t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			run(t, seed, func(w *world) {
				w.loss, w.seldom = int(seed%20), 8<<(seed%4*2)
				if seed%3 > 0 {
					w.disks = map[uint64]*disk{}
				}
				voters := []Voter{w.add(), w.add(), w.add()}
				if seed%2 == 0 {
					voters = append(voters, w.add(), w.add())
				}
				w.vote(voters)
				for range 6 {
					w.trouble(voters)
				}
				w.part()
				time.Sleep(election)
				w.leader()
			})
		})
		if !sound {
			t.Logf("see go test -run TestWorld -v -world-seed=%d", seed+1)
			return // for a planted bug one world is enough
		}
	}
}

var worldSeed = flag.Uint64("world-seed", 0, "make just this world")

func TestMutants(t *testing.T) { mutants.MustDie(t) }

// trouble makes one of the faults that TestWorld names.
func (w *world) trouble(voters []Voter) {
	w.mu.Lock()
	w.random.Shuffle(len(voters), func(i, j int) { voters[i], voters[j] = voters[j], voters[i] })
	few := voters[:1+w.random.IntN(len(voters)/2)]
	kind := w.random.IntN(7)
	if w.disks != nil && w.random.IntN(2) == 0 {
		kind = 7 + w.random.IntN(2)
	}
	w.mu.Unlock()
	if kind > 1 {
		w.part()
	}
	switch kind {
	case 2:
		w.kill(voters[0].ID)
		w.replace(voters, voters[0].ID)
	case 3:
		w.replace(voters, w.doom())
	case 4:
		w.ghosts(voters)
	case 5:
		w.kill(voters[0].ID)
		voters[0] = w.ghost()
		w.vote(voters)
		w.replace(voters, voters[0].ID)
	case 6:
		w.absent(voters)
	case 7:
		w.restart(voters)
	case 8:
		w.fail(voters)
	default:
		w.split(few)
	}
}

// replace puts another voter in the place of a dead one.
func (w *world) replace(voters []Voter, dead uint64) {
	i := slices.IndexFunc(voters, func(v Voter) bool { return v.ID == dead })
	voters[i] = w.add()
	w.vote(voters)
}

// split is a cut that leaves a majority on one side.
func (w *world) split(few []Voter) {
	var ids []uint64
	for _, voter := range few {
		ids = append(ids, voter.ID)
	}
	w.part(ids...)
	time.Sleep(election)
	if _, id := w.leader(); slices.Contains(ids, id) {
		w.t.Errorf("voter %d leads, of %v alone", id, ids)
	}
}

// absent cuts off a voter while others are replaced, and reconnects the voter afterwards. The
// replaced voters keep running, but vote for no other voter.
func (w *world) absent(voters []Voter) {
	w.split(voters[:1])
	for range 2 {
		fresh := w.add()
		copy(voters, w.elect(func(leader uint64) []Voter {
			others := slices.Clone(voters)
			i := 1
			if others[i].ID == leader {
				i++
			}
			others[i] = fresh
			return others
		}))
	}
	w.part()
	time.Sleep(election)
}

// ghost is a new voter that dies before it has the log.
func (w *world) ghost() Voter {
	v := w.add()
	w.kill(v.ID)
	return v
}

// ghosts adds so many ghosts that the new voters have no majority. The leader leads without them.
func (w *world) ghosts(voters []Voter) {
	r, _ := w.leader()
	r.Reconfigure([]Voter{w.ghost(), w.ghost(), w.ghost(), voters[0]})
	time.Sleep(2 * election)
	w.leader()
	w.vote(voters)
}

// doom makes a leader die while it takes a snapshot, and returns that leader.
func (w *world) doom() uint64 {
	for dead := make(chan struct{}); ; {
		_, id := w.leader()
		w.mu.Lock()
		w.doomed, w.dead = id, dead
		w.mu.Unlock()
		select {
		case <-dead:
			return id
		case <-time.After(election): // the leader has lost the lead before
		}
	}
}
