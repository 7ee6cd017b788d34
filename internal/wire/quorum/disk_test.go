package quorum

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// disk is a voter's disk. It is slow, and outlives the voter.
type disk struct {
	w       *world
	state   []byte
	changes [][]byte
	// fails is the number of writes until one fails; negative for none. The failed write may or may
	// not be on the disk. hangs is the delay of each write.
	fails int
	hangs time.Duration
}

var errDisk = errors.New("the disk has failed")

// disk returns a voter's disk, or nil.
func (w *world) disk(id uint64) Disk {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.disks == nil {
		return nil
	}
	if w.disks[id] == nil {
		w.disks[id] = &disk{w: w, fails: -1}
	}
	return w.disks[id]
}

func (d *disk) Keep(state []byte, changes [][]byte) error {
	d.w.mu.Lock()
	late, there := d.hangs+time.Duration(d.w.random.IntN(int(tick)/10)), d.w.random.IntN(2) == 0
	d.fails--
	fails := d.fails == 0
	if !fails || there {
		if state != nil {
			d.state, d.changes = bytes.Clone(state), nil
		}
		for _, c := range changes {
			d.changes = append(d.changes, bytes.Clone(c))
		}
	}
	d.w.mu.Unlock()
	time.Sleep(late)
	if fails {
		return errDisk
	}
	return nil
}

// resume starts a voter again with its kept state.
func (w *world) resume(v Voter) {
	w.mu.Lock()
	d := w.disks[v.ID]
	w.mu.Unlock()
	w.start(v, func(cfg Config) (*Log, error) {
		cfg.Self.ID = 0
		l, err := Resume(cfg, d.state, d.changes)
		if err == nil && l.Self() != v {
			w.t.Errorf("voter %v is %v now", v, l.Self())
		}
		return l, err
	})
}

// again starts voters again. At first each voter knows only the voters of its last kept state.
// Until more messages arrive, a test cannot tell which voters are a majority.
func (w *world) again(voters []Voter, start func()) {
	w.mu.Lock()
	w.cut = -w.cut - 1
	w.mu.Unlock()
	start()
	w.vote(voters)
	w.mu.Lock()
	w.cut = -w.cut + 1
	w.mu.Unlock()
}

// restart stops voters, perhaps all, and starts them again after a while.
func (w *world) restart(voters []Voter) {
	w.mu.Lock()
	some := slices.Clone(voters[:1+w.random.IntN(len(voters))])
	wait := time.Duration(w.random.IntN(int(2 * election)))
	w.mu.Unlock()
	w.again(voters, func() {
		for _, v := range some {
			w.kill(v.ID)
		}
		time.Sleep(wait)
		for _, v := range some {
			w.resume(v)
		}
	})
}

// fail makes a voter's disk fail, which ends the voter, and starts the voter again.
func (w *world) fail(voters []Voter) {
	v := voters[0]
	w.mu.Lock()
	w.disks[v.ID].fails = 1 + w.random.IntN(20)
	l := w.logs[v.ID]
	w.mu.Unlock()
	w.again(voters, func() {
		select {
		case <-l.Ended():
		case <-time.After(40 * election):
		}
		if !errors.Is(l.Err(), errDisk) {
			w.t.Fatalf("voter %d goes on: %v", v.ID, l.Err())
		}
		w.mu.Lock()
		delete(w.logs, v.ID)
		w.mu.Unlock()
		w.resume(v)
	})
}

// TestAllAreStartedAgain checks that all voters still know everything that they agreed on, whether
// a snapshot has replaced the entries or not.
func TestAllAreStartedAgain(t *testing.T) {
	for seed := range uint64(40) {
		run(t, seed, func(w *world) {
			w.disks, w.seldom = map[uint64]*disk{}, 2<<(seed%4)
			voters := []Voter{w.add(), w.add(), w.add()}
			w.vote(voters)
			for range 3 {
				w.mu.Lock()
				pause := time.Duration(w.random.IntN(int(election)))
				w.mu.Unlock()
				time.Sleep(pause)
				for _, v := range voters {
					w.kill(v.ID)
				}
				for _, v := range voters {
					w.resume(v)
				}
				w.leader()
			}
		})
	}
}

// TestADiskThatHangs: a voter whose disk hangs acts as if it were gone, and another voter leads.
func TestADiskThatHangs(t *testing.T) {
	run(t, 1, func(w *world) {
		w.disks = map[uint64]*disk{}
		w.vote([]Voter{w.add(), w.add(), w.add()})
		_, id := w.leader()
		w.mu.Lock()
		w.disks[id].hangs = 4 * election
		w.mu.Unlock()
		time.Sleep(2 * election)
		if _, next := w.leader(); next == id {
			t.Errorf("voter %d leads all the same", id)
		}
		w.mu.Lock()
		w.disks[id].hangs = 0
		w.mu.Unlock()
		time.Sleep(8 * election)
		w.leader()
		w.mu.Lock()
		w.kept = nil // late entries are reported out of order
		w.mu.Unlock()
	})
}

// TestAFreshVoterKeepsItsID checks that a voter keeps its ID if others learned the ID before the
// log began.
func TestAFreshVoterKeepsItsID(t *testing.T) {
	run(t, 1, func(w *world) {
		w.disks = map[uint64]*disk{}
		founder := w.voter()
		voters := []Voter{founder, w.add(), w.add()}
		w.start(founder, Follow)
		w.kill(2)
		w.kill(3)
		w.resume(voters[1])
		w.resume(voters[2])
		w.logs[1].Found(voters[1:]...)
		w.leader()
		w.kill(1)
		w.leader()
	})
}

// TestWhatMakesNoSense checks that a damaged state gives no voter, and no panic.
func TestWhatMakesNoSense(t *testing.T) {
	state := new(raftpb.Message{From: new(uint64(7))})
	entry := func(index uint64) []byte {
		return change(changeEntry, &raftpb.Entry{Index: &index, Term: new(uint64(1))})
	}
	commit := func(index uint64) []byte {
		return change(changeHardState, &raftpb.HardState{Term: new(uint64(1)), Commit: &index})
	}
	for name, changes := range map[string][][]byte{
		"nothing": {{}}, "what": {{'?', 1}}, "a gap": {entry(1), entry(3)}, "before all": {entry(0)}, "too much is committed": {entry(1), commit(2)},
		"half an entry": {entry(1)[:2]}, "half a state": {commit(1)[:2]},
	} {
		if _, err := Resume(Config{}, change('x', state)[1:], changes); !errors.Is(err, errKept) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, state := range [][]byte{nil, []byte("what?")} {
		if _, err := Resume(Config{}, state, nil); !errors.Is(err, errKept) {
			t.Errorf("%q: %v", state, err)
		}
	}
}

func FuzzResume(f *testing.F) {
	f.Add([]byte{}, []byte{'e'}, []byte{'h'})
	f.Fuzz(func(t *testing.T, state, first, second []byte) {
		l, err := Resume(Config{ElectionTimeout: time.Hour, Send: func(Message) {}}, state, [][]byte{first, second})
		if err == nil {
			l.Close()
		}
	})
}
