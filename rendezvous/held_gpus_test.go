package rendezvous

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/placement"
)

// held returns a node whose GPUs are all in use by other programs.
func held(i, n int) placement.Node {
	node := gpus(i, n)
	for g := range node.GPUs {
		node.GPUs[g].HeldBy = "pid 4411"
	}
	return node
}

// frees reports that some of the GPUs with which the agent joined are free.
func (a *agent) frees(indexes ...int) {
	var freed wire.Freed
	for _, i := range indexes {
		g := a.Node.GPUs[i]
		freed.GPUs = append(freed.GPUs, placement.GPU{Index: g.Index, UUID: g.UUID})
	}
	a.Report("", freed)
	synctest.Wait()
}

// TestFreedGPUsOfACluster checks that a waiting job starts when other processes free the GPUs that
// it needs, whichever coordinator leads.
func TestFreedGPUsOfACluster(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(held(1, 3), forever)
		u := h.user()
		u.submit(detached(task("a", 1, 2)))
		waits := func(want string) {
			t.Helper()
			if s := u.job("a"); s.Phase != string(job.Gathering) || !strings.Contains(s.Waits, want) {
				t.Errorf("a %s: %s, want %q in it", s.Phase, s.Waits, want)
			}
		}
		waits("gpu0 held by pid 4411")
		n1.Report("", wire.Freed{GPUs: []placement.GPU{{Index: 0, UUID: "GPU-1-0"}, {Index: 1, UUID: "GPU-2-1"}}})
		n1.Report("", wire.Freed{GPUs: []placement.GPU{{Index: 3, UUID: "GPU-1-3"}}})
		synctest.Wait()
		waits("gpu0 held by pid 4411")
		want(t, h.warned(), "node n1 reports that its gpu1, GPU-2-1, is free, but did not join with such a GPU", "gpu3, GPU-1-3, is free")
		n1.frees(0)
		h.crash()
		h.start()
		time.Sleep(time.Second)
		if s := u.status(); s.Nodes[0].GPUs[0].HeldBy != "" || s.Nodes[0].GPUs[1].HeldBy != "pid 4411" {
			t.Errorf("another coordinator has %+v", s.Nodes[0].GPUs)
		}
		h.crash()
		n1.frees(2)
		h.start()
		time.Sleep(time.Second)
		if got := n1.runs(); got != "a0" {
			t.Fatalf("%s run with two free GPUs", got)
		}
		n1.frees(0, 2)
		if s := u.status(); s.Nodes[0].GPUs[0].HeldBy != "job a" || s.Nodes[0].GPUs[1].HeldBy != "pid 4411" {
			t.Errorf("the job has %+v", s.Nodes[0].GPUs)
		}
	})
}

// TestFreedGPUsOfTheOnlyJob checks that the job starts when another process frees the last GPU that
// it needs. Otherwise the job ends when its time to wait is over.
func TestFreedGPUsOfTheOnlyJob(t *testing.T) {
	for _, freed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := one(2)
			s.Job.Request.GPU, s.Job.Request.PerNode, s.PlacementTimeout = true, []int{2}, time.Minute
			w := newWorldOf(t.Context(), t, Config{}, s)
			a, b := w.joinAs(held(1, 3), success), w.joinAs(gpus(2, 2), success)
			time.Sleep(30 * time.Second)
			a.frees(0)
			want(t, strings.Join(w.decided(), "\n"), "n1: gpu0 is free now; cannot place the job yet", "n1: 1 of 3 GPUs free")
			code := 124
			if freed {
				a.frees(2)
				code = 0
			}
			if r := <-w.result; r.Code != code {
				t.Errorf("%+v\n%s", r, strings.Join(w.decided(), "\n"))
			}
			<-a.done
			<-b.done
		})
	}
}
