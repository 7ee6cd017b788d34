package quorum

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestOneVoterLeadsAtOnce(t *testing.T) {
	run(t, 1, func(w *world) {
		before := time.Now()
		w.add()
		synctest.Wait()
		if r, _ := w.leader(); r.Number != 2 || time.Since(before) != 0 {
			t.Errorf("term %d after %v", r.Number, time.Since(before))
		}
	})
}

// TestVotersBeginTogether founds a log with other voters. The founder leads at once, even if one of
// the others is gone by then and a new voter replaces it.
func TestVotersBeginTogether(t *testing.T) {
	for seed := range uint64(20) {
		run(t, seed, func(w *world) {
			founder := w.voter()
			voters := []Voter{founder, w.add(), w.add()}
			before := time.Now()
			w.start(founder, Follow)
			if seed%2 == 1 {
				w.kill(3)
			}
			w.logs[1].Found(voters[1:]...)
			w.logs[1].Found(voters[1:2]...) // it has begun
			_, id := w.leader()
			if took := time.Since(before); id != 1 || took > 10*tick {
				t.Errorf("voter %d leads after %v", id, took)
			}
			time.Sleep(election)
			for _, v := range voters[:2] {
				if !same(w.voting[v.ID], voters) {
					t.Errorf("voter %d knows of %v", v.ID, w.voting[v.ID])
				}
				if l := w.logs[v.ID]; !l.Begun() || l.Leader() != founder {
					t.Errorf("voter %d knows that %v leads", v.ID, l.Leader())
				}
			}
			if seed%2 == 0 {
				w.kill(1)
			}
			time.Sleep(election)
			w.leader()
		})
	}
}

// TestAMinorityIsOver checks that a leader that loses its majority learns of the loss within two
// elections, and does nothing before.
func TestAMinorityIsOver(t *testing.T) {
	run(t, 1, func(w *world) {
		voters := []Voter{w.add(), w.add(), w.add()}
		w.vote(voters)
		w.kill(2)
		w.kill(3)
		r, _ := w.leader()
		var errs [3]error
		go func() { errs[0] = commit(t, r, "lost") }()
		go func() { errs[1] = wait(t, r.Confirm) }()
		go func() { errs[2] = wait(t, func(done func(error)) { r.Snapshot(nil, done) }) }()
		<-r.Over()
		synctest.Wait()
		for _, err := range append(errs[:], commit(t, r), wait(t, r.Confirm)) {
			if !errors.Is(err, ErrNotLeader) || !strings.Contains(err.Error(), "another coordinator may lead") {
				t.Errorf("%v", err)
			}
		}
		w.kill(1)
		if err := commit(t, r, "late"); !errors.Is(err, ErrNotLeader) {
			t.Errorf("%v of one that is closed", err)
		}
	})
}

// TestVotersShrink reduces the voters to one, which then needs no other.
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

// TestNewVotersThatDie checks that new voters that die before they have the log stop nothing. The
// old voters continue, and others replace the new ones.
func TestNewVotersThatDie(t *testing.T) {
	run(t, 1, func(w *world) {
		voters := []Voter{w.add(), w.add(), w.add()}
		w.kill(2)
		w.kill(3)
		r, _ := w.leader()
		r.Reconfigure(voters)
		time.Sleep(election)
		if err := commit(t, r, "alone"); err != nil {
			t.Error(err)
		}
		w.vote([]Voter{voters[0], w.add(), w.add()})
		w.kill(1)
		time.Sleep(election)
		w.leader()
	})
}

// TestANewVoterThatDies checks that no voter waits for the dead voter if the others are a majority
// without it.
func TestANewVoterThatDies(t *testing.T) {
	run(t, 1, func(w *world) {
		voters := []Voter{w.add(), w.add(), w.add()}
		w.kill(3)
		w.vote(voters)
	})
}

// TestALeaderLeftAloneNeedsNoAnswer checks that a voter left alone needs no answer to earlier
// questions.
func TestALeaderLeftAloneNeedsNoAnswer(t *testing.T) {
	for seed := range uint64(40) {
		run(t, seed, func(w *world) {
			voters := []Voter{w.add(), w.add(), w.add()}
			w.vote(voters)
			w.kill(3)
			r, _ := w.leader()
			for range 20 {
				r.Confirm(func(error) {})
			}
			w.vote(voters[:1])
			time.Sleep(election)
			if err := wait(t, r.Confirm); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if n := len(r.reads.asked); n > 0 {
				t.Errorf("%d have no answer", n)
			}
		})
	}
}

// TestKnownVotersNeedNoOldOnes checks that new voters do not need the old ones once a
// leader knows the new ones.
func TestKnownVotersNeedNoOldOnes(t *testing.T) {
	for seed := range uint64(40) {
		run(t, seed, func(w *world) {
			voters := []Voter{w.add(), w.add(), w.add()}
			w.mu.Lock() // the first voter leads already
			w.told = func(id uint64, known []Voter) {
				if id == 1 && len(known) == len(voters) {
					w.side[id] = true
				}
			}
			w.mu.Unlock()
			r, _ := w.leader()
			r.Reconfigure(voters)
			<-r.Over()
			time.Sleep(election)
			if _, id := w.leader(); id == 1 {
				t.Error("it leads all the same")
			}
		})
	}
}

// TestTransfer checks that a leader hands over without the wait for an election, even if messages
// are lost. What was committed is kept.
func TestTransfer(t *testing.T) {
	for seed := range uint64(40) {
		run(t, seed, func(w *world) {
			w.loss = int(seed % 4)
			voters := []Voter{w.add(), w.add(), w.add()}
			w.vote(voters)
			r, id := w.leader()
			before := time.Now()
			err := wait(t, w.logs[id].Transfer)
			transferred := time.Since(before)
			select {
			case <-r.Over():
			default:
				if err == nil {
					t.Error("it leads all the same")
				}
			}
			w.kill(id)
			for _, next := w.leader(); next == id; _, next = w.leader() {
				time.Sleep(tick)
			}
			if took := time.Since(before); w.loss == 0 && (err != nil || took > 10*tick) {
				t.Errorf("transferred after %v, %v, and another leads after %v", transferred, err, took)
			}
		})
	}
}

// TestTransferAlone has no voter that could lead instead.
func TestTransferAlone(t *testing.T) {
	run(t, 1, func(w *world) {
		voters := []Voter{w.add(), w.add(), w.add()}
		w.vote(voters)
		w.kill(2)
		w.kill(3)
		before := time.Now()
		if err := wait(t, w.logs[1].Transfer); !errors.Is(err, ErrNoSuccessor) && time.Since(before) < 10*tick {
			t.Errorf("%v after %v", err, time.Since(before))
		}
		l := w.logs[1]
		w.kill(1)
		if err := wait(t, l.Transfer); err != nil {
			t.Errorf("%v of one that is closed", err)
		}
	})
}

// TestAFullLog checks that a full log takes only a snapshot, and then entries again.
func TestAFullLog(t *testing.T) {
	run(t, 1, func(w *world) {
		l := w.logs[w.add().ID]
		r, _ := w.leader()
		l.inbox.post(func() { l.past.size = MaxSize - overhead })
		if err := commit(t, r, "more"); !errors.Is(err, ErrFull) {
			t.Errorf("%v", err)
		}
		synctest.Wait() // there is no other proposal before the next tick
		state := []byte(strings.Join(w.kept, " "))
		if err := wait(t, func(done func(error)) { r.Snapshot(state, done) }); err != nil {
			t.Error(err)
		}
		if err := commit(t, r, "more"); err != nil {
			t.Error(err)
		}
	})
}

// TestWhenVotersMayLeave checks that a voter may leave when it does not vote and will not vote. The
// voters that stay are a majority, no matter when the others became voters.
func TestWhenVotersMayLeave(t *testing.T) {
	for late := range 40 {
		run(t, uint64(late+1), func(w *world) {
			voters := []Voter{w.add(), w.add(), w.add(), w.add(), w.add()}
			term, _ := w.leader()
			term.Reconfigure(voters)
			time.Sleep(time.Duration(late) * tick / 8)
			term.Reconfigure(voters[:2])
			for _, v := range voters[2:] {
				if err := wait(t, func(done func(error)) { term.Release(v.Name, done) }); err != nil {
					t.Fatalf("%s may not leave: %v", v.Name, err)
				}
				w.kill(v.ID)
			}
			if err := commit(t, term, "more"); err != nil {
				t.Errorf("after %v: %v", time.Duration(late)*tick/8, err)
			}
		})
	}
}
