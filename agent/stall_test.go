package agent

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golaunch/golaunch/agent/internal/ncclprobe"
	"github.com/golaunch/golaunch/agent/internal/stall"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/testkit/topotest"
	"github.com/golaunch/golaunch/rankenv"
)

// watching returns a node that looks at its ranks when the test calls look.
func watching(t *testing.T, script string) (w *world, look func()) {
	t.Helper()
	w = obeyingOn(t, node(topotest.Machine{Nodes: 1, CoresPerNode: 1, Threads: 1, NodesPerSocket: 1, GPUs: []int{0, 0}}), script)
	looks := make(chan time.Time)
	w.hooks.stallTicks = looks
	w.jobs["test"].work.Task.HangTimeout = 4 * time.Hour
	return w, func() {
		t.Helper()
		select {
		case looks <- time.Now():
		case <-time.After(patience):
			t.Fatal("no look at the ranks")
		}
	}
}

func TestStandingStill(t *testing.T) {
	w, look := watching(t, `if [ $RANK = 1 ]; then echo $$ >pid; mv pid pid1; kill -STOP $$; echo on; fi
until grep -q "State:.T" /proc/$(cat pid1)/status; do sleep 0.01; done; echo up; exec sleep 1000`)
	w.order(startOf(0))
	w.screen.await(t, "[r0 n1] up")
	for range 1000 { // rank 0 may not be sleeping yet
		if look(); strings.Contains(w.journal.String(), `"does":"asleep`) {
			break
		}
	}
	for _, want := range []string{`"ranks":[{"rank":0,`, `"beat":false,"step":-1,"does":"asleep (`, `{"rank":1,`, `"does":"stopped"}]`} {
		w.journal.await(t, want)
	}
	w.order(job.Stop{Attempt: 0})
	w.quiet()
}

// TestSomeGoOn has ranks that stand still while another rank moves. The agent reports these ranks
// once the moving rank, too, has printed nothing for the whole limit.
func TestSomeGoOn(t *testing.T) {
	w, look := watching(t, `if [ $RANK = 1 ]; then echo up; exec sleep 1000; fi
n=0; until [ -e silent ]; do n=$((n+1)); echo "line $n."; sleep 0.01; done; exec cat /dev/zero >/dev/null`)
	w.order(startOf(0))
	w.screen.await(t, "up")
	for range 2 * stall.Looks {
		w.screen.await(t, fmt.Sprintf("line %d.", 1+strings.Count(w.screen.String(), "line")))
		look()
	}
	if strings.Contains(w.journal.String(), `"stalled"`) {
		t.Errorf("a job that speaks has stalled:\n%s", w.journal)
	}
	if err := os.WriteFile(filepath.Join(w.work.Task.Dir, "silent"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 1000 { // the agent may still read earlier output, which counts as movement
		if look(); strings.Contains(w.journal.String(), `"moving":1`) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.journal.await(t, `"ranks":[{"rank":1,`)
	w.journal.await(t, `"moving":1`)
	w.order(job.Stop{Attempt: 0})
	w.quiet()
}

func TestHeartbeats(t *testing.T) {
	w, look := watching(t, `[ $RANK = 1 ] || { echo 7 of 9 >$GOLAUNCH_HEARTBEAT_FILE; echo file=$GOLAUNCH_HEARTBEAT_FILE; }; echo up $RANK; while :; do echo busy; sleep 0.01; done`)
	w.order(startOf(0))
	w.screen.await(t, "up 0")
	w.screen.await(t, "up 1")
	for range 2 * stall.Looks {
		look()
	}
	w.journal.await(t, `"beat":true,"step":7,`)
	_, after, _ := strings.Cut(w.screen.String(), "file=")
	file, _, _ := strings.Cut(after, "\n")
	if err := os.WriteFile(file, []byte("8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.screen.await(t, "busy")
	look()
	w.journal.await(t, `"ranks":[]`)
	// Another program has removed the file. From then on the agent judges the rank like a rank
	// without heartbeats.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	for range 2 * stall.Looks {
		look()
	}
	if text := w.journal.String(); strings.Contains(text, `"beat":true,"step":8,`) {
		t.Errorf("a rank without its file is reported to stand still:\n%s", text)
	}
	w.order(job.Stop{Attempt: 0, Kill: true})
	w.quiet()
}

// ras answers like NCCL's RAS service (rasDumpCommsToJSON in src/ras/client_support.cc) for three
// ranks. The last rank is one all-reduce behind. bonus is how many more all-reduces all ranks have
// started.
func ras(t *testing.T, bonus *atomic.Int64) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { answer(conn, bonus.Load()) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return l.Addr().String()
}

func answer(conn net.Conn, bonus int64) {
	defer conn.Close()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		switch {
		case strings.HasPrefix(lines.Text(), "CLIENT PROTOCOL"):
			fmt.Fprintln(conn, "SERVER PROTOCOL 2")
		case lines.Text() == "STATUS":
			var ranks []string
			for i, n := range []int64{42, 42, 41} {
				ranks = append(ranks, fmt.Sprintf(`{"rank": %d, "host": "127.0.0.1", "pid": %d, "collective_counts": {"AllReduce": %d, "Broadcast": 3}}`,
					i, 100+i, n+bonus))
			}
			fmt.Fprintf(conn, `{"nccl_version": "2.28.7", "communicators": [{"hash": "1", "size": 3, "ranks": [%s]}]}`+"\n", strings.Join(ranks, ","))
			return
		default:
			fmt.Fprintln(conn, "OK")
		}
	}
}

func TestNCCLNamesTheRankBehind(t *testing.T) {
	var bonus atomic.Int64
	addr := ras(t, &bonus)
	w, look := watching(t, `echo up $RANK; exec sleep 1000`)
	env := append(os.Environ(), "NCCL_RAS_ADDR="+addr)
	w.jobs["test"].work.Task.Env = rankenv.Merge(rankenv.Layers{Inherited: env})
	w.order(withGPUs(0, 0, 1))
	w.screen.await(t, "up 0")
	w.screen.await(t, "up 1")
	for range 4 * stall.Looks { // the job progresses on other nodes
		bonus.Add(1)
		look()
	}
	if strings.Contains(w.journal.String(), `"stalled"`) {
		t.Errorf("a job that goes on has stalled:\n%s", w.journal)
	}
	for range 2 * stall.Looks {
		look()
	}
	w.journal.await(t, `"behind":[{"addr":"127.0.0.1","pid":102,"key":"it has started`)
	w.order(job.Stop{Attempt: 0})
	w.quiet()
}

func TestLaggardsOfACommunicator(t *testing.T) {
	var bonus atomic.Int64
	addr := ras(t, &bonus)
	var r ncclprobe.Progress
	addrs := []string{"127.0.0.1:1", addr} // nothing answers at the first address
	moved, behind := r.Ask(t.Context(), addrs)
	want := job.Client{Addr: netip.MustParseAddr("127.0.0.1"), PID: 102, Key: "it has started 41 AllReduce, and others 42"}
	if moved || len(behind) != 1 || behind[0] != want {
		t.Errorf("%v, %+v", moved, behind)
	}
	if moved, _ := r.Ask(t.Context(), addrs); moved {
		t.Error("nothing was started, and it moves")
	}
	bonus.Add(1)
	if moved, _ := r.Ask(t.Context(), addrs); !moved {
		t.Error("all have started one more, and it does not move")
	}
	if moved, behind := r.Ask(t.Context(), addrs[:1]); moved || behind != nil {
		t.Errorf("without a RAS service: %v, %v", moved, behind)
	}
}
