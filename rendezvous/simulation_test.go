package rendezvous

import (
	"context"
	"errors"
	"flag"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/testkit/mutants"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous/internal/election"
	"github.com/golaunch/golaunch/rendezvous/internal/log"
)

var (
	simHours = flag.Float64("hours", float64(mutants.Worlds(100_000)), "how many hours TestWorld simulates, in worlds of a thousand")
	simSeed  = flag.Uint64("world-seed", 0, "simulate just this world, and print what happens in it")
)

// The tested code measures time in leases, and there is one fault in each lease. 10^5 hours are
// 4,167 leases of a day. With leases of 15 s, these leases would be only 17 hours, with a fault
// every 15 s.
const (
	simLease    = 24 * time.Hour
	simKillTime = 8 * time.Hour
	worldTime   = 1000 * time.Hour
)

// TestWorld has the real coordinator and real sessions live through random faults, over cables and
// in virtual time. A seed decides all faults and their times. Only the order of two goroutines at
// the same instant is left to Go.
func TestWorld(t *testing.T) {
	defer stretch()()
	if *simSeed != 0 {
		t.Log(simulate(t, *simSeed).ends)
		return
	}
	ends := map[string]int{}
	seed := uint64(1)
	defer func() {
		if t.Failed() {
			t.Logf("see go test -run TestWorld -v -world-seed=%d", seed)
		}
	}()
	for ; seed <= uint64(*simHours/worldTime.Hours()); seed++ {
		for end, n := range simulate(t, seed).ends {
			ends[end] += n
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%v", ends)
	for _, want := range []string{"success", "success after restarts", "rank failed", "cancelled"} {
		if ends[want] == 0 && *simHours >= 10_000 {
			t.Errorf("no job ended in %s: the worlds are too tame", want)
		}
	}
}

// stretch makes gRPC's pings and the wait for the disk as much longer as the lease.
func stretch() (restore func()) {
	ping, write := wire.PingAfter, log.MaxWrite
	wire.PingAfter, log.MaxWrite = 10*simLease, 10*simLease
	return func() { wire.PingAfter, log.MaxWrite = ping, write }
}

// sim is a simulated world.
type sim struct {
	*hosted
	*truth
	*dice
	ctx      context.Context
	machines []*machine
	// up says that a coordinator runs, and since is when it started. idle is the time until which
	// its disk accepts nothing.
	up    atomic.Bool
	since atomic.Int64
	idle  atomic.Int64
	back  time.Time
	calm  atomic.Bool
	// jobs are the jobs whose end was not checked yet. submitted is the number of all jobs. ends
	// counts how the checked jobs ended.
	jobs                 map[string]submitted
	submitted, takeovers int
	ends                 map[string]int

	mu sync.Mutex
	// ended are the jobs whose end is in the coordinator's notes.
	ended map[string]bool
}

// submitted is a job, with the number of takeovers before its submission.
type submitted struct {
	replica.Submission
	takeovers int
}

func simulate(t *testing.T, seed uint64) *sim {
	dir := memory(t)
	var s *sim
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		s = &sim{
			truth: newTruth(t, seed), dice: newDice(seed, 0), ctx: ctx,
			jobs: map[string]submitted{}, ends: map[string]int{}, ended: map[string]bool{},
		}
		s.hosted = &hosted{world: &world{t: t}, dir: dir, cfg: Config{
			Lease: simLease, KillTime: simKillTime, Note: s.noted, onStep: s.stepped, onResume: s.resumed,
		}}
		if seed%4 == 0 {
			s.trio = newTrio(newDice(seed, 1000), simLease)
			defer s.trio.end()
			s.trio.meanwhile = func() {
				for range 3 {
					s.failRank()
					time.Sleep(s.upTo(simLease / election.PeerElectionsPerLease / 2))
				}
			}
		}
		s.run()
		end()
		s.shut()
		time.Sleep(2 * simLease) // all that still waits then finds that the world is over
		if *simSeed != 0 {
			t.Log(strings.Join(s.history, "\n"))
		}
	})
	return s
}

func (s *sim) run() {
	s.open()
	for i := range 2 + s.intN(4) {
		m := &machine{dice: newDice(s.seed, uint64(i+1)), s: s, node: gpus(i+1, 2), changed: make(chan struct{}), sound: time.Now()}
		s.machines = append(s.machines, m)
		go m.live()
	}
	for time.Since(s.began) < worldTime && !s.failed {
		s.pass(s.upTo(2 * simLease))
		s.act()
		s.settle()
	}
	s.quiet()
}

// open starts a coordinator.
func (s *sim) open() {
	s.hosted.start()
	s.since.Store(int64(time.Since(s.began)))
	s.up.Store(true)
	for _, m := range s.machines {
		m.stir()
	}
}

func (s *sim) shut() {
	if s.up.Swap(false) {
		s.hosted.crash()
		s.last = s.hosted.c.state.Index
	}
}

// pass lets time pass, and starts a coordinator again when it is due.
func (s *sim) pass(d time.Duration) {
	end := time.Now().Add(d)
	if !s.up.Load() && s.back.Before(end) {
		time.Sleep(time.Until(s.back))
		s.tell("the coordinator is started again")
		s.open()
	}
	time.Sleep(time.Until(end))
}

func (s *sim) submit() {
	if !s.prompt() || len(s.jobs) > 2 {
		return
	}
	id := "j" + strconv.Itoa(s.submitted)
	s.submitted++
	nodes := 1 + s.intN(len(s.machines))
	policies := []job.Restart{job.RestartJob, job.RestartJob, job.RestartNode, job.RestartRank, job.RestartNever}
	sub := replica.Submission{
		Spec: cluster.Spec{Job: job.Spec{
			ID: id, Restart: policies[s.intN(len(policies))], MaxRestarts: s.intN(6), Grace: s.upTo(simLease / 8),
			Request: placement.Request{MinNodes: nodes, MaxNodes: nodes, PerNode: []int{1 + s.intN(2)}, GPU: true},
		}},
		Detached: true, BackoffMin: simLease / 2, BackoffMax: 2 * simLease,
	}
	if s.chance(3) {
		sub.Job.RefillAfter = simLease
	}
	s.tell("%s comes: %d nodes of %d, %d ranks on each, restart %s", id, nodes, len(s.machines), sub.Job.Request.PerNode[0], sub.Job.Restart)
	s.ask("submission", func(c *session.Client) error {
		w, err := c.Submit(s.ctx, sub)
		if err == nil {
			s.jobs[id] = submitted{sub, s.takeovers}
			w.Close()
		}
		return err
	})
}

// ask plays a client with a single request.
func (s *sim) ask(what string, f func(*session.Client) error) {
	c, err := session.Connect(s.ctx, session.ClientOptions{Target: "head:1", Dial: func(ctx context.Context, _ string) (net.Conn, error) { return s.connect(ctx) }})
	if err == nil {
		err = f(c)
		err = errors.Join(err, c.Close())
	}
	if refused, ok := errors.AsType[*session.RequestError](err); ok {
		s.tell("%s: %v", what, refused)
	} else if err != nil {
		s.fail("%s: %v", what, err)
	}
}
