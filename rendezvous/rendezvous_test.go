package rendezvous

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/placement"
)

func TestJobRestartsAndSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var journal bytes.Buffer
		w := newWorld(t, Config{Spec: spec(3), Journal: &journal})
		begin := time.Now()
		var agents []*agent
		for i := range 3 {
			agents = append(agents, w.join(i+1, func(attempt int) (int, bool) {
				if attempt == 0 {
					return 7, i == 1
				}
				return 0, true
			}))
		}
		r := <-w.result
		if r.Code != 0 || r.Attempts != 2 || r.Restarts != 1 {
			t.Fatalf("%+v\n%s", r, strings.Join(w.decided(), "\n"))
		}
		if took := time.Since(begin); took < 900*time.Millisecond || took > 1100*time.Millisecond {
			t.Errorf("took %v, want the backoff of 1s, give or take 10%%", took)
		}
		for i, a := range agents {
			<-a.done
			a.Close("")
			if a.Err() != nil || a.finish == nil || a.finish.Result.Reason != r.Reason {
				t.Errorf("n%d: error %v, finish %+v", i+1, a.Err(), a.finish)
			}
			if len(a.starts) != 2 || a.starts[1].World.WorldSize != 3 || a.starts[1].World.MasterAddr != "10.0.0.1" ||
				a.starts[1].Group.NodeRank != i || a.starts[1].Group.Node.Name != node(i+1).Name {
				t.Errorf("n%d: starts %+v", i+1, a.starts)
			}
		}
		checkJournal(t, &journal, []string{"submitted", "joined", "prepared", "started", "exited", "stopped", "elapsed"})
	})
}

// checkJournal holds that each line is an object with a time, and that the events are there.
func checkJournal(t *testing.T, journal *bytes.Buffer, want []string) {
	var events []string
	for _, text := range strings.Split(strings.TrimSpace(journal.String()), "\n") {
		var l struct {
			Time   time.Time
			Event  string
			Reason string
		}
		if err := json.Unmarshal([]byte(text), &l); err != nil || l.Time.IsZero() {
			t.Errorf("%s: %v", text, err)
		}
		events = append(events, l.Event)
	}
	for _, event := range want {
		if !slices.Contains(events, event) {
			t.Errorf("no %s in the journal: %v", event, events)
		}
	}
}

// TestLease cuts the network one way, the other and both. The agent must give up its ranks before the coordinator counts them
// as dead, and its connection must not end before it says so.
func TestLease(t *testing.T) {
	for name, cut := range map[string]func(*cable){
		"up":   func(c *cable) { c.up.Store(true) },
		"down": func(c *cable) { c.down.Store(true) },
		"both": func(c *cable) { c.up.Store(true); c.down.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := spec(2)
				s.MaxRestarts = 0
				w := newWorld(t, Config{Spec: s})
				a, b := w.join(1, forever), w.join(2, forever)
				time.Sleep(time.Hour) // a job at work, for a while
				if a.attempts() != 1 || a.Err() != nil {
					t.Fatalf("%d attempts after an hour, %v", a.attempts(), a.Err())
				}
				cutAt := time.Now()
				cut(a.cable)
				<-a.done
				if a.Err() == nil || !strings.Contains(a.Err().Error(), "node n1 has not heard the coordinator at head:1 for 15s") {
					t.Errorf("agent: %v", a.Err())
				}
				r := <-w.result
				lost := w.when(isLost)
				if r.Code != 125 || !strings.Contains(r.Reason, "n1 was lost") {
					t.Errorf("%+v", r)
				}
				if silent := a.end.Sub(cutAt); silent < lease-lease/4 || silent > lease {
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

func TestRanksOutliveABrokenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{Spec: spec(2)})
		a, b := w.join(1, forever), w.join(2, forever)
		synctest.Wait()
		for range 5 {
			a.cable.unreachable.Store(true)
			a.cable.newest().timeout()
			time.Sleep(lease / 2)
			a.cable.unreachable.Store(false)
			time.Sleep(lease)
		}
		// What the agent says while it is cut off arrives once it is back, and once only.
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

// TestOrdersOutliveABrokenConnection breaks it before the order to start arrives.
func TestOrdersOutliveABrokenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{Spec: spec(2)})
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
		"killed":  func(a *agent) { a.cable.newest().Conn.Close() },
		"goodbye": func(a *agent) { a.Close("the machine goes down") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, Config{Spec: spec(2)})
				a, b := w.join(1, forever), w.join(2, success)
				synctest.Wait()
				a.cable.unreachable.Store(true)
				at := time.Now()
				die(a)
				synctest.Wait()
				if lost := w.when(isLost); lost != at {
					t.Errorf("lost after %v", lost.Sub(at))
				}
				spare := w.join(3, success)
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

// leave waits for the good end of a session.
func (a *agent) leave(t *testing.T) {
	<-a.done
	if a.Err() != nil || a.finish == nil {
		t.Errorf("%s: %v, finish %v", a.Node.Name, a.Err(), a.finish)
	}
	a.Close("")
}

func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		facts := map[string]string{"--max-restarts": "5", "--nodes": "3"}
		w := newWorld(t, Config{Spec: spec(3), Facts: facts})
		a := w.join(1, forever)
		join := func(o Options) error {
			o.Target, o.Dial, o.Warn = "head:1", w.dial, w.warn
			s, err := Join(t.Context(), o)
			if err == nil {
				s.Close("")
			}
			return err
		}
		named := func(name, addr string) placement.Node {
			n := node(2)
			n.Name = name
			if addr != "" {
				n.Addr = node(1).Addr
			}
			return n
		}
		big := node(2)
		big.Labels = map[string]string{"x": strings.Repeat("x", 2<<20)}
		for _, c := range []struct {
			o    Options
			want string
		}{
			{Options{Node: node(2), Facts: map[string]string{"--max-restarts": "3", "--nodes": "3"}},
				"the coordinator at head:1 refused node n2: --max-restarts differs: 3 here, 5 on the coordinator"},
			{Options{Node: node(2), Facts: map[string]string{"--max-restarts": "5"}}, "--nodes differs: unset here, 3 on the coordinator"},
			{Options{Node: node(2), Facts: map[string]string{"--max-restarts": "5", "--nodes": "3", "--x": "1"}},
				"--x differs: 1 here, unset on the coordinator"},
			{Options{Node: named("n1", "")}, "there is a node n1 already, at 10.0.0.1"},
			{Options{Node: named("n2", "taken")}, "address 10.0.0.1 is node n1's"},
			{Options{Node: named("../etc", "")}, `"../etc" is no node name`},
			{Options{Node: named("", "")}, `"" is no node name`},
			{Options{Node: placement.Node{Name: "n2"}}, "node n2 has no address that others could reach"},
			{Options{Node: big}, "too long"},
		} {
			err := join(c.o)
			var r *RefusedError
			if !errors.As(err, &r) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		}
		a.Close("")
		w.c.Cancel(130, "enough")
		<-w.result
		if len(w.warnings) != 1 || !strings.Contains(w.warnings[0], "was refused: --max-restarts differs") {
			t.Errorf("warnings %q, want one line a minute", w.warnings)
		}
	})
}

// TestHungAgent does not take its orders: it loses its lease, and the coordinator stops waiting.
func TestHungAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{Spec: spec(2)})
		a := w.join(1, forever)
		hung, err := Join(t.Context(), Options{Target: "head:1", Node: node(2), Dial: w.dial, Warn: w.warn})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		at := time.Now()
		for range 2 * maxPending {
			w.c.Signal(syscall.SIGUSR1)
		}
		<-hung.done
		if took := time.Since(at); took < lease/2 || took > lease {
			t.Errorf("the agent gave up after %v: %v", took, hung.Err())
		}
		hung.Close("")
		synctest.Wait()
		if lost := w.when(isLost); lost != time.Now() {
			t.Errorf("lost %v before now", time.Since(lost))
		}
		w.c.Cancel(130, "enough")
		<-w.result
		a.leave(t)
	})
}

// TestFullQueue has an agent that stops reading. It is cut off, and lost once its lease is over; nobody else is held up.
func TestFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{Spec: spec(2)})
		a, b := w.join(1, forever), w.join(2, forever)
		synctest.Wait()
		b.cable.stuck.Store(true)
		at := time.Now()
		for range 8 * maxOrders {
			w.c.Signal(syscall.SIGUSR1)
			synctest.Wait()
		}
		if took := time.Since(at); took != 0 {
			t.Errorf("held up for %v", took)
		}
		w.c.Signal(syscall.SIGUSR1)
		<-b.done
		t.Log(b.Err(), time.Since(at))
		b.Close("")
		time.Sleep(lease + killTime)
		if lost := w.when(isLost); lost.Sub(at) < lease+killTime {
			t.Errorf("lost after %v", lost.Sub(at))
		}
		if reasons := strings.Join(w.decided(), "\n"); !strings.Contains(reasons, "n2 was lost: its agent does not take its orders") {
			t.Error(reasons)
		}
		w.c.Cancel(130, "enough")
		<-w.result
		a.leave(t)
	})
}

func TestDeadlineAndCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w := newWorldCtx(ctx, t, Config{Spec: spec(1)})
		a := w.join(1, forever)
		if r := <-w.result; r.Code != 124 || !strings.Contains(r.Reason, "deadline") {
			t.Errorf("%+v", r)
		}
		a.leave(t)
		w = newWorld(t, Config{Spec: spec(1)})
		a = w.join(1, forever)
		w.c.Cancel(130, "interrupted")
		if r := <-w.result; r.Code != 130 || r.Reason != "job cancelled: interrupted" {
			t.Errorf("%+v", r)
		}
		a.leave(t)
	})
}

func TestFullDiskDoesNotEndTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{Spec: spec(1), Journal: fullDisk{}})
		a := w.join(1, success)
		if r := <-w.result; r.Code != 0 {
			t.Errorf("%+v", r)
		}
		a.leave(t)
		if len(w.warnings) != 1 || w.warnings[0] != "the journal ends here, the job goes on: no space left on device" {
			t.Errorf("warnings %q", w.warnings)
		}
	})
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }
