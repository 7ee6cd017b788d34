package rendezvous

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
)

// TestTheEarliestDeparture checks that each announced departure has its own deadline, and that a
// repeated notice names the time that remains.
func TestTheEarliestDeparture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		a, b := w.join(1, forever), w.join(2, forever)
		c, d := w.join(3, success), w.join(4, success)
		synctest.Wait()
		begun := time.Now()
		b.Report("", wire.Draining{Within: time.Hour, Why: "maintenance"})
		time.Sleep(time.Minute)
		a.Report("", wire.Draining{Within: 30 * time.Second, Why: "spot instance"})
		time.Sleep(10 * time.Second)
		a.cable.newest().timeout()
		<-a.done
		<-b.done
		if stopped := a.end.Sub(begun); stopped != 90*time.Second {
			t.Errorf("stopped after %v, not when the time of the first was over", stopped)
		}
		within := func(a *agent) (list []time.Duration) {
			for _, n := range a.notices {
				list = append(list, n.Within)
			}
			return list
		}
		if got := within(b); !slices.Equal(got, []time.Duration{time.Hour, 30 * time.Second}) {
			t.Errorf("n2 got a notice of %v", got)
		}
		if got := within(a); !slices.Equal(got, []time.Duration{time.Hour, 30 * time.Second, time.Hour - 70*time.Second, 20 * time.Second}) {
			t.Errorf("n1, whose connection broke, got a notice of %v", got)
		}
		if r := <-w.result; r.Code != 0 || r.Restarts != 0 || r.Attempts != 2 {
			t.Errorf("%+v\n%s", r, strings.Join(w.decided(), "\n"))
		}
		for _, x := range []*agent{c, d} {
			<-x.done
			x.Close("")
		}
	})
}

// TestAStopOfAllNodes sends each node a signal. Together the signals are one stop of the job, and
// the ranks get the signal.
func TestAStopOfAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		agents := []*agent{w.join(1, forever), w.join(2, forever)}
		synctest.Wait()
		for _, a := range agents {
			a.Report("", wire.Draining{Why: "got SIGINT", All: true, Signal: syscall.SIGINT})
		}
		for _, a := range agents {
			<-a.done
			if len(a.stops) != 1 || a.stops[0].Kill || a.stops[0].Signal != int(syscall.SIGINT) {
				t.Errorf("%s got %+v", a.Node.Name, a.stops)
			}
		}
		if r := <-w.result; r.Code != 130 || r.Reason != "job cancelled: got SIGINT" {
			t.Errorf("%+v\n%s", r, strings.Join(w.decided(), "\n"))
		}
	})
}
