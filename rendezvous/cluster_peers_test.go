package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/rendezvous/internal/log"
)

// headed is a cluster with several coordinators, in virtual time.
type headed struct {
	*peerage
	dir   string
	addrs []string
	// living are the running coordinators, and agents the joined agents.
	living map[string]*headPeer
	agents []*agent
	// capacity is what the coordinators may request.
	capacity []Capacity
	// longest is the longest time in which an agent has heard nothing from a coordinator.
	longest time.Duration
	notes   []string
}

// headPeer is one of the coordinators.
type headPeer struct {
	*Candidate
	stop  context.CancelFunc
	ended chan error
}

// several runs f with three coordinators.
func several(t *testing.T, f func(t *testing.T, h *headed)) {
	dir := memory(t)
	together(t, 0, func(t *testing.T, p *peerage) {
		h := &headed{peerage: p, dir: dir, addrs: []string{"h0:1", "h1:1", "h2:1"}, living: map[string]*headPeer{}}
		t.Cleanup(func() {
			for addr := range h.living {
				h.end(addr)
			}
		})
		f(t, h)
	})
}

func hostOf(addr string) string { return strings.TrimSuffix(addr, ":1") }

func (h *headed) store(addr string) string { return filepath.Join(h.dir, hostOf(addr)) }

// start starts a coordinator.
func (h *headed) start(addr string) *headPeer { return h.startWith(addr, h.addrs, lease) }

func (h *headed) startWith(addr string, peers []string, lease time.Duration) *headPeer {
	h.t.Helper()
	file, err := log.Open(h.store(addr))
	if err != nil {
		h.t.Fatal(err)
	}
	name := hostOf(addr)
	h.net.Lock()
	h.dead[name] = false
	h.net.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	p := &headPeer{stop: cancel, ended: make(chan error, 1), Candidate: NewCandidate(CandidateConfig{
		Node: addr, Addr: addr, Peers: peers, File: file, Lease: lease, Warn: h.warn, Dial: h.dial(name),
		Facts: map[string]string{"--peers": strings.Join(peers, ",")},
		Note: func(text string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.notes = append(h.notes, fmt.Sprint(time.Now().Format("04:05.000 "), text))
		},
	})}
	l := h.listen(name)
	go func() {
		err := Coordinate(ctx, l, nil, Config{Lease: lease, KillTime: killTime, Warn: h.warn, Candidate: p.Candidate, Capacity: h.capacity})
		p.ended <- errors.Join(err, file.Close())
	}()
	h.living[addr] = p
	return p
}

// startAll starts all coordinators, and waits until one leads.
func (h *headed) startAll() {
	h.t.Helper()
	for _, addr := range h.addrs {
		h.start(addr)
	}
	h.lead()
}

// kill ends the process of a coordinator.
func (h *headed) kill(addr string) {
	h.t.Helper()
	name := hostOf(addr)
	h.net.Lock()
	h.dead[name] = true
	h.net.Unlock()
	p := h.living[addr]
	delete(h.living, addr)
	p.Close()
	if err := <-p.ended; err != nil {
		h.t.Error(err)
	}
	h.net.Lock()
	defer h.net.Unlock()
	for _, w := range h.wires {
		if w.from == name || w.to == name {
			w.newest().end(nil)
		}
	}
}

// end makes a coordinator leave in order.
func (h *headed) end(addr string) {
	h.t.Helper()
	p := h.living[addr]
	delete(h.living, addr)
	p.stop()
	if err := <-p.ended; err != nil {
		h.t.Error(err)
	}
}

// noted returns the notes so far.
func (h *headed) noted() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.notes, "\n")
}

// silence returns the longest time in which an agent has heard nothing, since the last call of
// silence.
func (h *headed) silence() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	longest := h.longest
	h.longest = 0
	return longest
}

// lead waits until a coordinator leads. It returns the address and the coordinator.
func (h *headed) lead() (string, *Coordinator) {
	h.t.Helper()
	for limit := time.Now().Add(4 * lease); time.Now().Before(limit); time.Sleep(lease / 240) {
		for addr, p := range h.living {
			if c := p.coordinator.Load(); c != nil && c.keeps() {
				return addr, c
			}
		}
	}
	h.t.Fatalf("none leads: %s", h.noted())
	return "", nil
}

// keeps reports whether a coordinator can still store entries in the log.
func (c *Coordinator) keeps() bool {
	kept := make(chan struct{})
	c.post(func() { c.log.Then(func() { close(kept) }) })
	select {
	case <-kept:
		return true
	case <-c.done:
		return false
	}
}

// joinAll makes agents join.
func (h *headed) joinAll(n int) {
	h.t.Helper()
	for i := range n {
		name := fmt.Sprint("n", i)
		var last time.Duration
		start := time.Now()
		dial := h.dial(name)
		node := gpus(i, 2)
		node.Name = name
		h.agents = append(h.agents, h.joinWith(session.Options{
			Node: node, Target: h.addrs[0], Elsewhere: h.addrs, DialAt: dial, Warn: h.warn,
			Clock: func() time.Duration { return time.Since(start) },
			Heard: func(at, _ time.Duration) {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.longest = max(h.longest, at-last)
				last = at
			},
		}, forever, map[string]*share{}))
	}
}

// client returns a client that knows all coordinators.
func (h *headed) client() *user {
	h.t.Helper()
	c, err := session.Connect(h.t.Context(), session.ClientOptions{Target: strings.Join(h.addrs, ","), Dial: h.dial("user")})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { c.Close() })
	return &user{Client: c, h: &hosted{world: h.world}}
}

// manyJobs is how many jobs, of five nodes each, run when a coordinator is lost. Their number is
// smaller with the race detector.
var manyJobs = 20

// TestAnyCoordinatorMayBeLost loses each coordinator in turn. The ranks of many jobs continue.
// Agents and clients hear nothing for at most a third of a lease.
func TestAnyCoordinatorMayBeLost(t *testing.T) {
	for name, lose := range map[string]func(*headed, string) (back func()){
		"killed": func(h *headed, addr string) func() {
			h.kill(addr)
			return func() { h.start(addr) }
		},
		"with its disk": func(h *headed, addr string) func() {
			h.kill(addr)
			return func() {
				if err := os.RemoveAll(h.store(addr)); err != nil {
					h.t.Fatal(err)
				}
				h.start(addr)
			}
		},
		"cut off": func(h *headed, addr string) func() {
			h.part(hostOf(addr))
			return func() { h.part() }
		},
		"stopped in order": func(h *headed, addr string) func() {
			h.end(addr)
			return func() { h.start(addr) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			several(t, func(t *testing.T, h *headed) {
				h.startAll()
				n := manyJobs
				if name != "killed" && name != "cut off" { // these cases say more with many jobs
					n = 2
				}
				h.joinAll(5 * n)
				ann := h.client()
				var jobs []*sight
				for i := range n {
					jobs = append(jobs, ann.submit(task(fmt.Sprint("j", i), 5, 2)))
				}
				time.Sleep(lease)
				for i, addr := range h.addrs {
					h.silence()
					back := lose(h, addr)
					before := time.Now()
					id := fmt.Sprint("more", i)
					late := h.client().submit(detached(task(id, 1, 1)))
					if took := time.Since(before); took > lease/3 {
						t.Errorf("a job was accepted at %s, %v after %s was lost\n%s", time.Now().Format("04:05.000"), took, addr, h.noted())
					}
					time.Sleep(lease)
					if longest := h.silence(); longest > 2*lease/3 {
						t.Errorf("an agent had no answer for %v after %s was lost", longest, addr)
					}
					if err := h.client().Signal(t.Context(), id, 10); err != nil {
						t.Error(err)
					}
					late.Close()
					back()
					time.Sleep(2 * lease)
				}
				for _, a := range h.agents {
					for i := range jobs {
						a.exitJob(fmt.Sprint("j", i), 0, 0)
					}
				}
				for _, s := range jobs {
					if r := s.over(t); r.Code != 0 || r.Attempts != 1 {
						t.Errorf("%s: %+v", s.Job, r)
					}
				}
				want(t, fmt.Sprint(len(ann.status().Jobs)), fmt.Sprint(n+3))
			})
		})
	}
}

// TestAllCoordinatorsAreStartedAgain checks that restarted coordinators know what they knew before.
func TestAllCoordinatorsAreStartedAgain(t *testing.T) {
	several(t, func(t *testing.T, h *headed) {
		h.startAll()
		h.joinAll(2)
		a := h.client().submit(detached(task("a", 2, 2)))
		b := h.client().submit(detached(task("b", 2, 2)))
		time.Sleep(lease)
		for _, addr := range h.addrs {
			h.kill(addr)
		}
		time.Sleep(lease / 3)
		for _, addr := range h.addrs {
			h.start(addr)
		}
		h.lead()
		for range 2 {
			time.Sleep(lease)
			for i, id := range []string{"a", "b"} {
				h.agents[i].exitJob(id, 0, 0)
				h.agents[1-i].exitJob(id, 0, 0)
			}
		}
		for _, s := range []*sight{a, b} {
			if r := s.over(t); r.Code != 0 || r.Attempts != 1 {
				t.Errorf("%s: %+v", s.Job, r)
			}
		}
	})
}

// TestAMinorityOfCoordinators checks that a minority decides nothing, and notes what it waits for.
func TestAMinorityOfCoordinators(t *testing.T) {
	several(t, func(t *testing.T, h *headed) {
		h.start(h.addrs[0])
		h.start(h.addrs[1])
		time.Sleep(10 * lease)
		want(t, h.noted(), "waits for all other coordinators, as a first start must: h2:1 cannot be reached yet")
		if h.living[h.addrs[0]].coordinator.Load() != nil || h.living[h.addrs[1]].coordinator.Load() != nil {
			t.Error("two of three have begun")
		}
		h.start(h.addrs[2])
		h.lead()
		h.kill(h.addrs[0])
		h.kill(h.addrs[2])
		time.Sleep(2 * lease)
		if c := h.living[h.addrs[1]].coordinator.Load(); c != nil {
			t.Error("one of three leads")
		}
		want(t, h.noted(), "waits for a majority of the coordinators: h0:1, h2:1 cannot be reached")
		if _, err := h.client().Status(t.Context()); err == nil || !strings.Contains(err.Error(), "knows of no leader") {
			t.Error(err)
		}
		h.start(h.addrs[2])
		h.lead()
	})
}

// TestOtherCoordinators starts coordinators of another cluster, or with other options.
func TestOtherCoordinators(t *testing.T) {
	several(t, func(t *testing.T, h *headed) {
		h.start(h.addrs[0])
		h.start(h.addrs[1])
		h.startWith(h.addrs[2], []string{"h0:1", "h2:1", "h3:1"}, lease)
		time.Sleep(4 * lease)
		differs := "h2:1 is not a coordinator of the same cluster: --peers differs: h0:1,h1:1,h2:1 here, h0:1,h2:1,h3:1 on the coordinator"
		if n := strings.Count(h.noted(), differs); n < 1 || n > 2 {
			t.Errorf("told %d times:\n%s", n, h.noted())
		}
		for _, p := range h.living {
			if p.coordinator.Load() != nil {
				t.Error("it leads")
			}
		}
	})
}

// TestAnotherLease restarts the coordinators one after another with another lease. Agents that join
// from then on get that lease.
func TestAnotherLease(t *testing.T) {
	several(t, func(t *testing.T, h *headed) {
		h.startAll()
		h.joinAll(1)
		for _, addr := range h.addrs {
			h.end(addr)
			h.lead()
			h.startWith(addr, h.addrs, lease/2)
			h.lead()
		}
		h.agents[0].Close("")
		h.joinAll(1)
		if l := h.agents[1].Lease; l != lease/2 || h.agents[0].Lease != lease {
			t.Errorf("leases %v, then %v", h.agents[0].Lease, l)
		}
		if err := h.agents[0].Err(); err != nil {
			t.Error(err)
		}
	})
}

// TestACoordinatorMoves moves one coordinator to another machine. The other coordinators are
// restarted one after another with the new list, and the new coordinator joins.
func TestACoordinatorMoves(t *testing.T) {
	several(t, func(t *testing.T, h *headed) {
		h.startAll()
		h.client().submit(detached(task("a", 2, 2)))
		h.kill(h.addrs[2])
		list := []string{"h0:1", "h1:1", "h3:1"}
		for _, addr := range list[:2] {
			h.end(addr)
			h.startWith(addr, list, lease)
			h.lead()
			time.Sleep(lease)
		}
		h.addrs = list
		h.start("h3:1")
		time.Sleep(2 * lease)
		h.kill("h0:1")
		addr, c := h.lead()
		if _, err := ask(c, func() (*trackedJob, error) { return c.job("a") }); err != nil {
			t.Errorf("%s leads: %v", addr, err)
		}
		h.end(addr)
		h.start("h0:1")
		h.lead()
	})
}

// TestAFileThatMakesNoSense starts a coordinator with a file that is no peer's log.
func TestAFileThatMakesNoSense(t *testing.T) {
	several(t, func(t *testing.T, h *headed) {
		file, err := log.Open(h.store("h0:1"))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		file.Keep(log.Round{Snapshot: []byte("what?")}, func(err error) { done <- err })
		if err := errors.Join(<-done, file.Close()); err != nil {
			t.Fatal(err)
		}
		p := h.start("h0:1")
		delete(h.living, "h0:1")
		if err := <-p.ended; err == nil || !strings.Contains(err.Error(), "is inconsistent") {
			t.Error(err)
		}
		synctest.Wait()
	})
}

// TestAWatchWithoutAReader checks that a client that does not read its watch stays connected, and
// does not lose its job.
func TestAWatchWithoutAReader(t *testing.T) {
	several(t, func(t *testing.T, h *headed) {
		h.startAll()
		h.joinAll(1)
		u := h.client()
		w, err := u.Submit(t.Context(), task("a", 1, 1))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		time.Sleep(4 * lease)
		if j := u.job("a"); j.Result != nil {
			t.Errorf("%+v", j.Result)
		}
		h.agents[0].exitJob("a", 0, 0)
		if r := see(t, w).over(t); r.Code != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// TestAClusterIsInvited invites a cluster to a job. This is a mistake of the user, and the answer
// must say so.
func TestAClusterIsInvited(t *testing.T) {
	several(t, func(t *testing.T, h *headed) {
		h.startAll()
		addr, c := h.lead()
		_, err := ask(c, func() (bool, error) { return true, c.succession.invited(&pb.Invitation{Job: "j"}) })
		if err == nil || !strings.Contains(err.Error(), "a cluster's coordinator listens there") {
			t.Errorf("%s: %v", addr, err)
		}
	})
}
