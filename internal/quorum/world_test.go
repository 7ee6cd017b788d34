package quorum

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const tick = 250 * time.Millisecond

// election is longer than any that is not disturbed.
const election = 60 * tick

// world is voters and the network between them, in virtual time.
type world struct {
	t *testing.T

	mu     sync.Mutex
	random *rand.Rand
	logs   map[uint64]*Log
	// side is where each voter is while the network is cut in two, and loss how many of a hundred messages are lost.
	side map[uint64]bool
	loss int
	next uint64
	// kept are the entries that were said to be committed, and newest is the newest term in which something was.
	kept   []string
	newest uint64
	cut    int
	// leading are the reigns that go on.
	leading map[*Reign]uint64
	leads   sync.WaitGroup
	// voting are those of which each voter knows that they vote; told hears it too, when it is not nil.
	voting map[uint64][]Voter
	told   func(id uint64, voters []Voter)
}

func run(t *testing.T, seed uint64, f func(*world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, random: rand.New(rand.NewPCG(seed, 0)), logs: map[uint64]*Log{}, side: map[uint64]bool{}, leading: map[*Reign]uint64{}, voting: map[uint64][]Voter{},
		}
		defer w.end()
		f(w)
	})
}

// add starts a voter, the first of which founds the log.
func (w *world) add() Voter {
	w.mu.Lock()
	w.next++
	self := Voter{ID: w.next, Name: fmt.Sprintf("n%d", w.next)}
	w.mu.Unlock()
	begin := Wait
	if self.ID == 1 {
		begin = Found
	}
	l, err := begin(Config{
		Self: self, Patience: 10 * tick,
		Send:  func(to Voter, message []byte) { w.send(self, to.ID, message) },
		Voted: func(v []Voter) { w.voted(self.ID, v) },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.logs[self.ID] = l
	w.mu.Unlock()
	w.leads.Go(func() { w.lead(self.ID, l) })
	return self
}

func (w *world) voted(id uint64, voters []Voter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.voting[id] = voters
	if w.told != nil {
		w.told(id, voters)
	}
}

// send delivers late, in any order, twice, or not at all.
func (w *world) send(from Voter, to uint64, message []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range 1 + w.random.IntN(11)/10 {
		if w.random.IntN(100) < w.loss {
			continue
		}
		time.AfterFunc(time.Duration(w.random.IntN(int(tick))), func() {
			w.mu.Lock()
			l, cut := w.logs[to], w.side[from.ID] != w.side[to]
			w.mu.Unlock()
			if l != nil && !cut {
				l.Step(from, message)
			}
		})
	}
}

// lead adds entries for as long as a voter leads.
func (w *world) lead(id uint64, l *Log) {
	for {
		select {
		case r := <-l.Reigns():
			w.mu.Lock()
			w.leading[r] = id
			if past := w.text(r.Past); !ordered(w.kept, past) {
				w.t.Errorf("voter %d leads with %q, and %q were committed", id, past, w.kept)
			}
			w.mu.Unlock()
			for n := 0; w.commit(r, id, n); n++ {
			}
			w.mu.Lock()
			delete(w.leading, r)
			w.mu.Unlock()
		case <-l.done:
			return
		}
	}
}

func (w *world) text(entries [][]byte) []string {
	var all []string
	for _, e := range entries {
		all = append(all, string(e))
	}
	return all
}

// ordered says that all of a are in b, in their order.
func ordered(a, b []string) bool {
	for _, e := range b {
		if len(a) > 0 && a[0] == e {
			a = a[1:]
		}
	}
	return len(a) == 0
}

// commit adds an entry or two, or asks who leads. It checks that no newer leader had done so before, and that a minority cannot.
func (w *world) commit(r *Reign, id uint64, n int) bool {
	var entries []string
	for i := range n % 3 {
		entries = append(entries, fmt.Sprintf("%d.%d.%d", r.term, n, i))
	}
	w.mu.Lock()
	newest, cut := w.newest, w.cut
	w.mu.Unlock()
	var data [][]byte
	for _, e := range entries {
		data = append(data, []byte(e))
	}
	if r.Commit(data...) != nil {
		return false
	}
	w.mu.Lock()
	w.kept = append(w.kept, entries...)
	if r.term < newest {
		w.t.Errorf("voter %d acts in term %d after term %d has begun to", id, r.term, newest)
	}
	if w.newest = max(w.newest, r.term); cut > 0 && cut == w.cut && w.minority(id) {
		w.t.Errorf("voter %d acts with a minority", id)
	}
	w.mu.Unlock()
	time.Sleep(tick)
	return true
}

// minority says that a voter can reach less than half of those that vote.
func (w *world) minority(id uint64) bool {
	reached := 0
	for _, v := range w.voting[id] {
		if w.logs[v.ID] != nil && w.side[v.ID] == w.side[id] {
			reached++
		}
	}
	return 2*reached <= len(w.voting[id])
}

// leader waits for a reign.
func (w *world) leader() (*Reign, uint64) {
	for deadline := time.Now().Add(20 * election); time.Now().Before(deadline); time.Sleep(tick) {
		w.mu.Lock()
		for r, id := range w.leading {
			if r.term == w.newest {
				w.mu.Unlock()
				return r, id
			}
		}
		w.mu.Unlock()
	}
	w.t.Fatalf("nobody leads: %v newest %d voting %v", w.leading, w.newest, w.voting)
	return nil, 0
}

// vote has the log kept by the given voters, and waits until their leader says so: while they change, both the old and the new ones are
// needed.
func (w *world) vote(voters []Voter) {
	for deadline := time.Now().Add(20 * election); time.Now().Before(deadline); time.Sleep(tick) {
		r, id := w.leader()
		r.Want(voters)
		w.mu.Lock()
		done := same(w.voting[id], voters)
		w.mu.Unlock()
		if done {
			return
		}
	}
	w.t.Fatalf("%v do not vote: %v", voters, w.voting)
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

// part cuts the network so that the given voters are on their own; none mends it.
func (w *world) part(ids ...uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut++
	w.side = map[uint64]bool{}
	for _, id := range ids {
		w.side[id] = true
	}
}

// end stops all, and compares what each of them has.
func (w *world) end() {
	w.mu.Lock()
	logs := w.logs
	w.logs = map[uint64]*Log{}
	w.mu.Unlock()
	var longest []string
	for _, l := range logs {
		l.Close()
		if have := w.text(l.entries); len(have) > len(longest) {
			longest = have
		}
	}
	for id, l := range logs {
		if have := w.text(l.entries); !slices.Equal(have, longest[:len(have)]) {
			w.t.Errorf("voter %d has %q, another has %q", id, have, longest)
		}
	}
	if !ordered(w.kept, longest) {
		w.t.Errorf("%q were committed, and %q are kept", w.kept, longest)
	}
	w.leads.Wait()
}

// TestRandomWorlds has voters die and be replaced, and the network lose, double, reorder and part, and somebody lead all the same.
func TestRandomWorlds(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			run(t, seed, func(w *world) {
				w.loss = int(seed % 20)
				voters := []Voter{w.add(), w.add(), w.add()}
				if seed%2 == 0 {
					voters = append(voters, w.add(), w.add())
				}
				w.vote(voters)
				for range 6 {
					w.trouble(&voters)
				}
				w.part()
				time.Sleep(election)
				w.leader()
			})
		})
	}
}

// trouble is a cut that leaves a majority somewhere, or the death of a voter, which is then replaced.
func (w *world) trouble(voters *[]Voter) {
	v := *voters
	w.mu.Lock()
	w.random.Shuffle(len(v), func(i, j int) { v[i], v[j] = v[j], v[i] })
	few := v[:1+w.random.IntN(len(v)/2)]
	dies := w.random.IntN(3) == 0
	w.mu.Unlock()
	if dies {
		w.part()
		w.kill(v[0].ID)
		v[0] = w.add()
		w.vote(v)
		return
	}
	var ids []uint64
	for _, voter := range few {
		ids = append(ids, voter.ID)
	}
	w.part(ids...)
	time.Sleep(election)
	_, id := w.leader()
	if slices.Contains(ids, id) {
		w.t.Errorf("voter %d leads of %v, of %d", id, ids, len(v))
	}
}

func TestOneVoterLeadsAtOnce(t *testing.T) {
	run(t, 1, func(w *world) {
		before := time.Now()
		w.add()
		synctest.Wait()
		if r, _ := w.leader(); r.term != 2 || time.Since(before) != 0 {
			t.Errorf("term %d after %v", r.term, time.Since(before))
		}
	})
}

// TestAMinorityIsOver: who has lost the majority learns of it within two elections, and does nothing before.
func TestAMinorityIsOver(t *testing.T) {
	run(t, 1, func(w *world) {
		voters := []Voter{w.add(), w.add(), w.add()}
		w.vote(voters)
		w.kill(2)
		w.kill(3)
		r, _ := w.leader()
		<-r.Over()
		if err := r.Commit(); err == nil || !strings.Contains(err.Error(), "another coordinator may lead") {
			t.Errorf("%v", err)
		}
	})
}

// TestVotersShrink to one, which needs nobody then.
func TestVotersShrink(t *testing.T) {
	run(t, 1, func(w *world) {
		voters := []Voter{w.add(), w.add(), w.add()}
		w.vote(voters)
		w.kill(3)
		w.vote(voters[:1])
		w.kill(2)
		time.Sleep(election)
		if _, id := w.leader(); id != 1 {
			t.Errorf("voter %d leads", id)
		}
	})
}

// TestWhoIsLeftAloneNeedsNoAnswer to what it has asked others before.
func TestWhoIsLeftAloneNeedsNoAnswer(t *testing.T) {
	for seed := range uint64(40) {
		run(t, seed, func(w *world) {
			voters := []Voter{w.add(), w.add(), w.add()}
			w.vote(voters)
			w.kill(3)
			r, _ := w.leader()
			for range 20 {
				go func() { _ = r.Commit() }()
			}
			w.vote(voters[:1])
			time.Sleep(election)
			if err := r.Commit(); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if n := len(r.reads); n > 0 {
				t.Errorf("%d have no answer", n)
			}
		})
	}
}

// TestVotersThatAreKnownNeedNobodyElse: from the moment in which a leader hears that there are others who vote, they can do without it.
func TestVotersThatAreKnownNeedNobodyElse(t *testing.T) {
	for seed := range uint64(40) {
		run(t, seed, func(w *world) {
			voters := []Voter{w.add(), w.add(), w.add()}
			w.told = func(id uint64, known []Voter) {
				if id == 1 && len(known) == len(voters) {
					w.side[id] = true
				}
			}
			r, _ := w.leader()
			r.Want(voters)
			<-r.Over()
			time.Sleep(election)
			if _, id := w.leader(); id == 1 {
				t.Error("it leads all the same")
			}
		})
	}
}

// TestPass: who leads hands that on in order, without an election's wait, whatever is lost on the way; what was committed is kept.
func TestPass(t *testing.T) {
	for seed := range uint64(40) {
		run(t, seed, func(w *world) {
			w.loss = int(seed % 4)
			voters := []Voter{w.add(), w.add(), w.add()}
			w.vote(voters)
			_, id := w.leader()
			before := time.Now()
			w.logs[id].Pass()
			passed := time.Since(before)
			w.kill(id)
			for _, next := w.leader(); next == id; _, next = w.leader() {
				time.Sleep(tick)
			}
			if took := time.Since(before); w.loss == 0 && (passed >= 10*tick || took > 10*tick) {
				t.Errorf("passed after %v, and another leads after %v", passed, took)
			}
		})
	}
}

// TestPassAlone: nobody is there to lead in its place.
func TestPassAlone(t *testing.T) {
	run(t, 1, func(w *world) {
		voters := []Voter{w.add(), w.add(), w.add()}
		w.vote(voters)
		w.kill(2)
		w.kill(3)
		w.logs[1].Pass()
	})
}
