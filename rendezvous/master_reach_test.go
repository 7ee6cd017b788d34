package rendezvous

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestNodesThatDoNotReachTheMaster checks that a node that cannot reach the job's master ends the
// job before any rank has started.
func TestNodesThatDoNotReachTheMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		n1, n2 := w.join(1, forever), w.join(2, forever)
		n2.bar("connection\ntimed out")
		w.join(3, forever)
		r := <-w.result
		want := "n2 (10.0.0.2) cannot reach n1 at 10.0.0.1:4000 (MASTER_ADDR:MASTER_PORT): connection timed out; check the route"
		if r.Code != 125 || r.Attempts != 0 || !strings.Contains(r.Reason, want) {
			t.Errorf("%+v", r)
		}
		<-n1.done
		if n1.attempts()+n2.attempts() > 0 {
			t.Error("ranks were started")
		}
	})
}

// TestATakeoverAsksAgain kills the coordinator while a node finds out whether it reaches the
// master.
func TestATakeoverAsksAgain(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1, n2 := h.joinAs(gpus(1, 1), forever), h.joinAs(gpus(2, 1), forever)
		n2.loseWay(true)
		a := h.user().submit(detached(task("a", 2, 1)))
		if s := h.user().job("a"); !strings.Contains(s.Waits, "waiting for n2 (10.0.0.2) to reach the master at 10.0.0.1:4000") {
			t.Errorf("%+v", s)
		}
		h.crash()
		n2.loseWay(false)
		h.start()
		time.Sleep(lease / 3)
		if got := n1.runs() + ", " + n2.runs(); got != "a0, a0" {
			t.Errorf("%s run", got)
		}
		n1.exitJob("a", 0, 0)
		n2.exitJob("a", 0, 0)
		if r := a.over(t); r.Code != 0 || r.Attempts != 1 {
			t.Errorf("%+v", r)
		}
	})
}

// TestAQuestionOutlivesABrokenConnection breaks the connection before a node is asked whether it
// reaches the master.
func TestAQuestionOutlivesABrokenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		n2 := w.join(2, success)
		synctest.Wait()
		n2.cable.newest().timeout()
		n2.cable.unreachable.Store(true)
		synctest.Wait()
		n1 := w.join(1, success)
		synctest.Wait()
		n2.cable.unreachable.Store(false)
		if r := <-w.result; r.Code != 0 || r.Attempts != 1 {
			t.Errorf("%+v\n%s", r, strings.Join(w.decided(), "\n"))
		}
		if text := strings.Join(w.decided(), "\n"); !strings.Contains(text, "n2 is back; repeating 1 order") {
			t.Error(text)
		}
		<-n1.done
		<-n2.done
		n1.Close("")
		n2.Close("")
	})
}

// bar makes the agent report from now on that it cannot reach the master.
func (a *agent) bar(why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.barred = why
}

// loseWay makes the agent report nothing about the master while lost is true.
func (a *agent) loseWay(lost bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lost = lost
}
