package rendezvous

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire/session"
)

// TestLease cuts the network towards the coordinator, towards the agent, and both ways. The agent
// must end its ranks before the coordinator counts them as dead. The agent's connection must stay
// open until the agent closes it.
func TestLease(t *testing.T) {
	for name, cut := range map[string]func(*cable){
		"up":   func(c *cable) { c.up.Store(true) },
		"down": func(c *cable) { c.down.Store(true) },
		"both": func(c *cable) { c.up.Store(true); c.down.Store(true) },
		"late": func(c *cable) { c.late.Store(int64(3 * time.Second)); <-time.After(time.Minute); c.up.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := one(2)
				s.Job.MaxRestarts = 0
				w := newWorldOf(t.Context(), t, Config{}, s)
				a, b := w.join(1, forever), w.join(2, forever)
				time.Sleep(time.Hour) // a job at work, for a while
				if a.attempts() != 1 || a.Err() != nil {
					t.Fatalf("%d attempts after an hour, %v", a.attempts(), a.Err())
				}
				cut(a.cable)
				cutAt := time.Now()
				<-a.done
				if a.Err() == nil || !strings.Contains(a.Err().Error(), "node n1 has not heard the coordinator at head:1 for 15s") {
					t.Errorf("agent: %v", a.Err())
				}
				r := <-w.result
				lost := w.when(isLost)
				if r.Code != 125 || !strings.Contains(r.Reason, "n1 was lost") {
					t.Errorf("%+v", r)
				}
				if silent := a.end.Sub(cutAt); silent < lease-lease/3 || silent > lease {
					t.Errorf("the agent gave up after %v", silent)
				}
				if margin := lost.Sub(a.end); margin < killTime {
					t.Errorf("the agent had %v to kill its ranks, want %v at least", margin, killTime)
				}
				if late := lost.Sub(cutAt); late > 2*lease+killTime {
					t.Errorf("the coordinator waited for %v", late)
				}
				<-b.done
				a.Close("")
				b.Close("")
			})
		})
	}
}

// TestAPausedAgent checks that an agent that was paused finds its lease over when it continues. It
// keeps the lease if the coordinator, which may also have been paused, has not replaced its ranks.
func TestAPausedAgent(t *testing.T) {
	for name, isCut := range map[string]bool{"the coordinator answers": false, "without an answer": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				start := time.Now()
				var asleep atomic.Int64
				clock := func() time.Duration { return time.Since(start) + time.Duration(asleep.Load()) }
				a := w.joinWith(session.Options{Node: node(1), Clock: clock}, forever, map[string]*share{})
				time.Sleep(time.Minute)
				if isCut {
					a.cable.cut()
				}
				asleep.Store(int64(10 * lease))
				time.Sleep(lease)
				if lost := a.Err() != nil; lost != isCut {
					t.Errorf("it has ended with %v", a.Err())
				}
				w.c.Cancel(130, "enough")
				<-w.result
				<-a.done
				a.Close("")
			})
		})
	}
}

func TestRanksOutliveABrokenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		a, b := w.join(1, forever), w.join(2, forever)
		synctest.Wait()
		for range 5 {
			a.cable.unreachable.Store(true)
			a.cable.newest().timeout()
			time.Sleep(lease / 2)
			a.cable.unreachable.Store(false)
			time.Sleep(lease)
		}
		// Reports from the time when the agent is cut off arrive once it is back, and only once.
		a.cable.unreachable.Store(true)
		a.cable.newest().timeout()
		synctest.Wait()
		a.exitAll(0, 0)
		b.exitAll(0, 0)
		synctest.Wait()
		a.cable.unreachable.Store(false)
		r := <-w.result
		if r.Code != 0 || r.Attempts != 1 || a.attempts() != 1 {
			t.Errorf("%+v, %d starts\n%s", r, a.attempts(), strings.Join(w.decided(), "\n"))
		}
		<-a.done
		<-b.done
		a.Close("")
		b.Close("")
	})
}

// TestOrdersOutliveABrokenConnection breaks an agent's connection before the order to start
// arrives.
func TestOrdersOutliveABrokenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		a := w.join(1, success)
		synctest.Wait()
		a.cable.newest().timeout()
		a.cable.unreachable.Store(true)
		synctest.Wait()
		b := w.join(2, success)
		synctest.Wait()
		a.cable.unreachable.Store(false)
		if r := <-w.result; r.Code != 0 || r.Attempts != 1 {
			t.Errorf("%+v\n%s", r, strings.Join(w.decided(), "\n"))
		}
		<-a.done
		<-b.done
		a.Close("")
		b.Close("")
	})
}

func TestDeadAgentIsLostAtOnce(t *testing.T) {
	for name, die := range map[string]func(*agent){
		"killed":  (*agent).die,
		"goodbye": func(a *agent) { a.Close("the machine goes down") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 2)
				a, b := w.join(1, forever), w.join(2, success)
				synctest.Wait()
				a.cable.unreachable.Store(true)
				at := time.Now()
				die(a)
				synctest.Wait()
				if lost := w.when(isLost); lost != at {
					t.Errorf("lost after %v", lost.Sub(at))
				}
				if name == "goodbye" && !strings.Contains(strings.Join(w.decided(), "\n"), "n1 was lost: the machine goes down") {
					t.Error(w.decided())
				}
				substitute := node(1)
				substitute.Name = "n3"
				spare := w.joinAs(substitute, success)
				if r := <-w.result; r.Code != 0 || r.Restarts != 1 {
					t.Errorf("%+v\n%s", r, strings.Join(w.decided(), "\n"))
				}
				b.leave(t)
				spare.leave(t)
				a.Close("")
			})
		})
	}
}

// reportMany sends more reports in all than an agent keeps. It waits in between, so that the
// coordinator takes them.
func reportMany(a *agent) {
	for range 20 {
		for range 1000 {
			a.Report("j1", job.Started{})
		}
		synctest.Wait()
	}
}

// TestReportsAreKept checks that an agent keeps reports until the coordinator has them, and no
// longer.
func TestReportsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		a := w.join(1, forever)
		synctest.Wait()
		reportMany(a)
		time.Sleep(lease)
		a.cable.up.Store(true)
		a.exitAll(0, 0)
		synctest.Wait()
		a.cable.newest().timeout()
		a.cable.up.Store(false)
		if r := <-w.result; r.Code != 0 {
			t.Errorf("%+v", r)
		}
		a.leave(t)
	})
}

// TestAnotherAgentGoesOn replaces a dead agent by an agent that adopts its ranks, twice. The
// coordinator notices no loss.
func TestAnotherAgentGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		a, b := w.join(1, forever), w.join(2, forever)
		synctest.Wait()
		reportMany(a)
		synctest.Wait()
		for range 2 {
			former := a
			a = w.inPlaceOf(former)
			defer former.Close("")
			a.Report("j1", job.Started{})
			time.Sleep(lease)
		}
		a.exitAll(0, 0)
		b.exitAll(0, 0)
		if r := <-w.result; r.Code != 0 || r.Attempts != 1 || r.Restarts != 0 {
			t.Errorf("%+v\n%s", r, strings.Join(w.decided(), "\n"))
		}
		a.leave(t)
		b.leave(t)
	})
}

// TestLateFinish checks that the end of a job reaches an agent whose connection was broken when the
// job ended.
func TestLateFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		a, spare := w.join(1, forever), w.join(2, forever)
		spare.cable.unreachable.Store(true)
		spare.cable.newest().timeout()
		synctest.Wait()
		a.exitAll(0, 0)
		a.leave(t)
		spare.cable.unreachable.Store(false)
		if r := <-w.result; r.Code != 0 {
			t.Errorf("%+v", r)
		}
		spare.leave(t)
	})
}

// TestNodeIsReplaced starts a new machine with the name of a silent machine. The new machine waits
// until the silent machine is lost, and then gets the ranks of the silent machine.
func TestNodeIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		a, b := w.join(1, forever), w.join(2, forever)
		synctest.Wait()
		a.cable.cut()
		time.Sleep(lease * 3 / 4)
		again := w.join(1, forever)
		if lost := w.when(isLost); lost.IsZero() || time.Since(lost) > lease {
			t.Errorf("it was taken in at %v, and the other was lost at %v", time.Now(), lost)
		}
		time.Sleep(lease)
		if again.attempts() != 1 || b.attempts() != 2 {
			t.Fatalf("%d and %d starts\n%s", again.attempts(), b.attempts(), strings.Join(w.decided(), "\n"))
		}
		again.exitAll(1, 0)
		b.exitAll(1, 0)
		if r := <-w.result; r.Code != 0 || r.Restarts != 1 {
			t.Errorf("%+v", r)
		}
		again.leave(t)
		b.leave(t)
		a.Close("")
	})
}

// TestAnotherCoordinator brings an agent back to a coordinator that does not know the agent. The
// agent must end its ranks.
func TestAnotherCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		a := w.join(1, forever)
		synctest.Wait()
		other := newWorld(t, 2)
		a.cable.dial = other.dial
		a.cable.newest().timeout()
		<-a.done
		var r *session.RefusedError
		if !errors.As(a.Err(), &r) || r.Why != "node n1 had joined another coordinator" {
			t.Errorf("%v", a.Err())
		}
		a.Close("")
		for _, w := range []*world{w, other} {
			w.c.Cancel(130, "enough")
			<-w.result
		}
	})
}
