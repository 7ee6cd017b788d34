package quorum

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

const tick = 250 * time.Millisecond

// election is longer than any undisturbed election.
const election = 60 * tick

// world has voters and the network between them, in virtual time.
type world struct {
	t *testing.T

	mu     sync.Mutex
	random *rand.Rand
	logs   map[uint64]*Log
	// side says on which side each voter is while the network is cut in two. loss is how many of a
	// hundred messages are lost.
	side map[uint64]bool
	loss int
	next uint64
	// kept are the entries that were reported as committed. newest is the newest term that has an
	// entry. One in seldom proposals is a snapshot.
	kept   []string
	newest uint64
	seldom int
	cut    int
	// leading are the terms under way. The leader of the term doomed dies while it takes a
	// snapshot; dead is then closed.
	leading map[*Term]uint64
	leads   sync.WaitGroup
	doomed  uint64
	dead    chan struct{}
	// voting has, for each voter, the voters that it knows. told, if not nil, gets each change too.
	voting map[uint64][]Voter
	told   func(id uint64, voters []Voter)
	// disks has the disk of each voter. It is empty in a world without disks.
	disks map[uint64]*disk
}

func run(t *testing.T, seed uint64, f func(*world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, random: rand.New(rand.NewPCG(seed, 0)), logs: map[uint64]*Log{}, side: map[uint64]bool{}, leading: map[*Term]uint64{},
			voting: map[uint64][]Voter{}, seldom: 8,
		}
		defer w.end()
		f(w)
	})
}

// voter returns the next voter.
func (w *world) voter() Voter {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	return Voter{ID: w.next, Name: fmt.Sprintf("n%d", w.next)}
}

// add starts a voter. The first voter founds the log.
func (w *world) add() Voter {
	self := w.voter()
	w.start(self, Follow)
	if self.ID == 1 {
		w.logs[1].Found()
	}
	return self
}

func (w *world) start(self Voter, begin func(Config) (*Log, error)) {
	l, err := begin(Config{
		Self: self, Disk: w.disk(self.ID), ElectionTimeout: 10 * tick,
		Send:          func(m Message) { w.send(self, m) },
		VotersChanged: func(v []Voter) { w.tellVoters(self.ID, v) },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.logs[self.ID] = l
	w.mu.Unlock()
	w.leads.Go(func() { w.setLeader(self.ID, l) })
}

func (w *world) tellVoters(id uint64, voters []Voter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.voting[id] = voters
	if w.told != nil {
		w.told(id, voters)
	}
}

// send delivers messages late, in any order, twice, or not at all. The sender learns of that,
// possibly late and sometimes wrongly.
func (w *world) send(from Voter, m Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range 1 + w.random.IntN(11)/10 {
		lost, wrong := w.random.IntN(100) < w.loss, w.random.IntN(100) < w.loss
		time.AfterFunc(time.Duration(w.random.IntN(int(tick))), func() {
			w.mu.Lock()
			l, cut := w.logs[m.To.ID], w.side[from.ID] != w.side[m.To.ID]
			w.mu.Unlock()
			arrives := l != nil && !cut && !lost
			if arrives {
				l.Step(from, m.Bytes())
			}
			var err error
			if arrives == wrong {
				err = errors.New("lost")
			}
			m.Done(err)
		})
	}
}

// setLeader adds entries for as long as a voter leads, to a state that it has from the log.
func (w *world) setLeader(id uint64, l *Log) {
	for {
		select {
		case t := <-l.Terms():
			state := replay(t.Past)
			w.mu.Lock()
			w.leading[t] = id
			if !ordered(w.kept, state) {
				w.t.Errorf("voter %d leads with %q, and %q were committed", id, state, w.kept)
			}
			w.mu.Unlock()
			for n := 0; w.act(t, id, n, &state); n++ {
				w.die(t, id, l, state)
			}
			w.mu.Lock()
			delete(w.leading, t)
			w.mu.Unlock()
		case <-l.closed:
			return
		}
	}
}

// replay is the toy state machine. Its state is everything that has happened, and so is its
// snapshot.
func replay(past Past) (state []string) {
	if past.Snapshot != nil {
		state = strings.Fields(string(past.Snapshot))
	}
	for _, e := range past.Entries {
		state = append(state, string(e))
	}
	return state
}

// ordered reports whether b has all of a, in the same order.
func ordered(a, b []string) bool {
	for _, e := range b {
		if len(a) > 0 && a[0] == e {
			a = a[1:]
		}
	}
	return len(a) == 0
}

// wait asks for something and waits for the only answer.
func wait(t testing.TB, ask func(func(error))) error {
	done := make(chan error, 1)
	var answers atomic.Int32
	ask(func(err error) {
		if answers.Add(1) > 1 {
			t.Error("answered twice")
			return
		}
		done <- err
	})
	return <-done
}

func commit(t testing.TB, term *Term, entries ...string) error {
	var data [][]byte
	for _, e := range entries {
		data = append(data, []byte(e))
	}
	return wait(t, func(done func(error)) { term.Propose(data, done) })
}

// act adds an entry or two, asks who leads, or takes a snapshot. It checks that no newer leader had
// already acted, and that a minority cannot act.
func (w *world) act(t *Term, id uint64, n int, state *[]string) bool {
	w.mu.Lock()
	newest, cut, takes := w.newest, w.cut, w.random.IntN(w.seldom) == 0
	w.mu.Unlock()
	var entries []string
	var err error
	switch {
	case takes:
		err = wait(w.t, func(done func(error)) { t.Snapshot([]byte(strings.Join(*state, " ")), done) })
	case n%3 == 0:
		err = wait(w.t, t.Confirm)
	default:
		for i := range n % 3 {
			entries = append(entries, fmt.Sprintf("%d.%d.%d", t.Number, n, i))
		}
		*state = append(*state, entries...)
		err = commit(w.t, t, entries...)
	}
	if err != nil {
		return false
	}
	voters := electorate(t.log)
	w.mu.Lock()
	w.kept = append(w.kept, entries...)
	if t.Number < newest {
		w.t.Errorf("voter %d acts in term %d after term %d has begun to", id, t.Number, newest)
	}
	if w.newest = max(w.newest, t.Number); cut > 0 && cut == w.cut && w.minority(id, voters) {
		w.t.Errorf("voter %d acts with a minority of %v on sides %v, for %d entries, %v a snapshot", id, voters, w.side, len(entries), takes)
	}
	w.mu.Unlock()
	time.Sleep(tick)
	return true
}

// die ends a doomed leader right after it has proposed an entry, a snapshot, and another entry.
func (w *world) die(t *Term, id uint64, l *Log, state []string) {
	w.mu.Lock()
	doomed, late := w.doomed == id && w.logs[id] == l, time.Duration(w.random.IntN(int(2*tick)))
	w.mu.Unlock()
	if !doomed {
		return
	}
	last := fmt.Sprintf("%d.last", t.Number)
	t.Propose([][]byte{[]byte(last)}, func(error) {})
	t.Snapshot([]byte(strings.Join(append(state, last), " ")), func(error) {})
	t.Propose([][]byte{[]byte(last + "+")}, func(error) {})
	time.Sleep(late)
	w.mu.Lock()
	w.doomed = 0
	delete(w.logs, id)
	w.mu.Unlock()
	l.Close()
	close(w.dead)
}

// electorate returns the voters that a voter knows now; none after its end.
func electorate(l *Log) (ids []uint64) {
	answered := make(chan struct{})
	if !l.inbox.post(func() {
		ids = slices.Clone(l.members.conf.GetVoters())
		close(answered)
	}) {
		return nil
	}
	<-answered
	return ids
}

// minority reports whether a voter can reach less than half of the voters.
func (w *world) minority(id uint64, voters []uint64) bool {
	reached := 0
	for _, v := range voters {
		if w.logs[v] != nil && w.side[v] == w.side[id] {
			reached++
		}
	}
	return 2*reached <= len(voters) && len(voters) > 0
}

// leader waits for a voter that leads.
func (w *world) leader() (*Term, uint64) {
	for deadline := time.Now().Add(20 * election); time.Now().Before(deadline); time.Sleep(tick) {
		w.mu.Lock()
		for t, id := range w.leading {
			if t.Number == w.newest {
				w.mu.Unlock()
				return t, id
			}
		}
		w.mu.Unlock()
	}
	w.t.Fatalf("there is no leader: %v newest %d voting %v", w.leading, w.newest, w.voting)
	return nil, 0
}

// vote makes the given voters keep the log.
func (w *world) vote(voters []Voter) { w.elect(func(uint64) []Voter { return voters }) }

// elect gives the log the voters that want returns for the leader, and waits until that leader has
// changed them. During the change, both the old and the new voters are needed.
func (w *world) elect(want func(leader uint64) []Voter) []Voter {
	for deadline := time.Now().Add(20 * election); time.Now().Before(deadline); time.Sleep(tick) {
		t, id := w.leader()
		voters := want(id)
		t.Reconfigure(voters)
		w.mu.Lock()
		done := same(w.voting[id], voters)
		w.mu.Unlock()
		if done {
			return voters
		}
	}
	w.t.Fatalf("others vote: %v", w.voting)
	return nil
}

func same(a, b []Voter) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(v Voter) bool { return !slices.Contains(b, v) })
}

// kill ends a voter for good.
func (w *world) kill(id uint64) {
	w.mu.Lock()
	l := w.logs[id]
	delete(w.logs, id)
	w.mu.Unlock()
	l.Close()
}

// part cuts the network so that the given voters are on their own. Without any voters it restores
// the network.
func (w *world) part(ids ...uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut++
	w.side = map[uint64]bool{}
	for _, id := range ids {
		w.side[id] = true
	}
}

// end stops all voters, and compares their logs.
func (w *world) end() {
	w.mu.Lock()
	logs := w.logs
	w.logs, w.cut = map[uint64]*Log{}, 0 // which voters are a minority can no longer be determined
	w.mu.Unlock()
	var longest []string
	for _, l := range logs {
		l.Close()
		if have := replay(l.past.get()); len(have) > len(longest) {
			longest = have
		}
	}
	w.leads.Wait()
	for id, l := range logs {
		if have := replay(l.past.get()); !slices.Equal(have, longest[:len(have)]) {
			w.t.Errorf("voter %d has %q, another has %q", id, have, longest)
		}
		w.bounded(id, l)
		w.informed(id, l, logs)
	}
	if len(logs) > 0 && !ordered(w.kept, longest) {
		w.t.Errorf("%q were committed, and %q are kept", w.kept, longest)
	}
}

// bounded checks that a voter has no more than one snapshot and the entries after it.
func (w *world) bounded(id uint64, l *Log) {
	size := 0
	for i, e := range l.past.sealed {
		if size += sizeOf(e); i > 0 && e[0] == kindSnapshot {
			w.t.Errorf("voter %d has entries from before a snapshot", id)
		}
	}
	if size != l.past.size {
		w.t.Errorf("voter %d has %d bytes, and counts %d", id, size, l.past.size)
	}
	first, err := l.storage.FirstIndex()
	must(err)
	if l.past.index < first {
		return
	}
	stored, err := l.storage.Entries(first, l.past.index+1, 1<<62)
	must(err)
	for _, e := range stored {
		if e.GetType() == raftpb.EntryNormal && len(e.GetData()) > 0 && e.GetData()[0] == kindSnapshot {
			w.t.Errorf("voter %d has a snapshot of index %d, and entries from before", id, e.GetIndex())
		}
	}
}

// informed checks that a voter knows the other voters, and few dead ones.
func (w *world) informed(id uint64, l *Log, live map[uint64]*Log) {
	now := l.node.Status().Config
	members := now.Voters.IDs()
	for learner := range now.Learners {
		members[learner] = struct{}{}
	}
	for member := range members {
		if l.members.known[member].Voter != (Voter{ID: member, Name: fmt.Sprint("n", member)}) {
			w.t.Errorf("voter %d knows %v as %v", id, member, l.members.known[member])
		}
	}
	dead := 0
	for other := range l.members.known {
		if _, ok := members[other]; !ok && live[other] == nil {
			dead++
		}
	}
	if dead > 4 {
		w.t.Errorf("voter %d knows %v, and is in %v", id, l.members.known, now)
	}
	for _, v := range l.members.conf.GetVoters() {
		if _, ok := now.Voters[0][v]; !ok || len(l.members.conf.GetVoters()) != len(now.Voters[0]) {
			w.t.Errorf("voter %d goes by %v, and is in %v", id, l.members.conf, now)
		}
	}
	if len(now.Voters[0]) > 0 && len(l.members.conf.GetVoters()) == 0 {
		w.t.Errorf("voter %d does not know that it is in %v", id, now)
	}
}
