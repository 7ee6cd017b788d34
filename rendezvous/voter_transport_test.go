package rendezvous

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/quorum"
	"github.com/golaunch/golaunch/rendezvous/internal/election"
)

// chamber is a group of voters without a coordinator, in virtual time.
type chamber struct {
	*peerage
	candidates []*Candidate

	mu sync.Mutex
	// dials counts how often each node has connected to another.
	dials map[[2]string]int
	// uplink has the uplink of each node to all others.
	uplink map[string]*uplink
}

// uplink limits how many bytes a second a node sends, and serves the node's connections in turn. A
// rate of 0 sets no limit.
type uplink struct {
	turn chan struct{}
	rate atomic.Int64
}

type slowConn struct {
	net.Conn
	*uplink
}

func (c slowConn) Write(b []byte) (n int, err error) {
	for part := range slices.Chunk(b, 16<<10) {
		if rate := c.rate.Load(); rate > 0 {
			c.turn <- struct{}{}
			time.Sleep(time.Second * time.Duration(len(part)) / time.Duration(rate))
			<-c.turn
		}
		wrote, err := c.Conn.Write(part)
		if n += wrote; err != nil {
			return n, err
		}
	}
	return n, nil
}

func confer(t *testing.T, f func(t *testing.T, c *chamber)) {
	together(t, 1, func(t *testing.T, p *peerage) {
		c := &chamber{peerage: p, dials: map[[2]string]int{}, uplink: map[string]*uplink{}}
		t.Cleanup(func() {
			for _, s := range c.candidates {
				s.Close()
			}
		})
		f(t, c)
	})
}

// candidate returns a further voter.
func (c *chamber) candidate() *Candidate {
	name := fmt.Sprint("n", len(c.candidates)+1)
	up := &uplink{turn: make(chan struct{}, 1)}
	c.uplink[name] = up
	s := NewCandidate(CandidateConfig{
		Node: name, Lease: lease, Warn: c.warn,
		Listen: func(netip.Addr) (net.Listener, error) { return c.listen(name), nil },
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			to, _, _ := strings.Cut(addr, ":")
			c.mu.Lock()
			c.dials[[2]string{name, to}]++
			c.mu.Unlock()
			conn, err := c.dial(name)(ctx, addr)
			return slowConn{conn, up}, err
		},
	})
	c.candidates = append(c.candidates, s)
	if s.Open(netip.Addr{}).ID == 0 {
		c.t.Fatal("no candidate")
	}
	return s
}

// first returns the term of the first voter, which has the log.
func (c *chamber) first() *quorum.Term { return found(c.t, c.candidate()) }

// vote waits until only these candidates keep the log, and returns how long that took.
func (c *chamber) vote(term *quorum.Term, candidates ...*Candidate) time.Duration {
	c.t.Helper()
	began := time.Now()
	term.Reconfigure(wire.Convert(candidates, func(s *Candidate) quorum.Voter { return s.election.Self() }))
	for len(candidates[0].election.Others()) != len(candidates)-1 {
		select {
		case <-term.Over():
			c.t.Fatalf("%s leads no more after %v", candidates[0].cfg.Node, time.Since(began))
		case <-time.After(lease / 100):
		}
		if time.Since(began) > 6*lease {
			c.t.Fatalf("%d others vote after %v", len(candidates[0].election.Others()), time.Since(began))
		}
	}
	return time.Since(began)
}

// commitAll appends all the given content to a log at once, and waits until the voters have it.
func commitAll(t testing.TB, term *quorum.Term, past quorum.Past) {
	t.Helper()
	done := make(chan error, 1+len(past.Entries))
	answer := func(err error) { done <- err }
	n := len(past.Entries)
	if past.Snapshot != nil {
		term.Snapshot(past.Snapshot, answer)
		n++
	}
	for _, e := range past.Entries {
		term.Propose([][]byte{e}, answer)
	}
	late := time.After(6 * lease)
	for range n {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		case <-late:
			t.Fatal("a majority does not have it")
		}
	}
}

func entries(n, size int) (all [][]byte) {
	for i := range n {
		all = append(all, bytes.Repeat([]byte{byte('a' + i%26)}, size))
	}
	return all
}

// logs have the greatest lengths that can occur.
var logs = map[string]func() quorum.Past{
	"a snapshot of 8 MiB and 20 MiB of entries": func() quorum.Past {
		return quorum.Past{Snapshot: make([]byte, 8<<20), Entries: entries(200, 100<<10)}
	},
	"entries of 5 MiB":     func() quorum.Past { return quorum.Past{Entries: entries(5, 5<<20)} },
	"a snapshot of 32 MiB": func() quorum.Past { return quorum.Past{Snapshot: make([]byte, 32<<20)} },
	"many small entries":   func() quorum.Past { return quorum.Past{Entries: entries(20_000, 300)} },
}

// TestNewVotersAreCaughtUp checks that new voters get all of a log, without a failed message. One
// connection of each kind suffices, and retries do not wait for a heartbeat.
func TestNewVotersAreCaughtUp(t *testing.T) {
	for name, log := range logs {
		t.Run(name, func(t *testing.T) {
			past := log()
			confer(t, func(t *testing.T, c *chamber) {
				term := c.first()
				commitAll(t, term, past)
				if took := c.vote(term, c.candidates[0], c.candidate(), c.candidate()); took > lease/20 {
					t.Errorf("they vote after %v", took)
				}
				c.atEase()
				c.succeeded(past)
			})
		})
	}
}

// TestLongEntries sends long entries to voters that have all entries before them.
func TestLongEntries(t *testing.T) {
	for name, log := range logs {
		t.Run(name, func(t *testing.T) {
			past := log()
			confer(t, func(t *testing.T, c *chamber) {
				term := c.first()
				c.vote(term, c.candidates[0], c.candidate(), c.candidate())
				began := time.Now()
				commitAll(t, term, past)
				if took := time.Since(began); took > lease/20 {
					t.Errorf("they are there after %v", took)
				}
				c.atEase()
				c.succeeded(past)
			})
		})
	}
}

// atEase checks that each voter connected to each other voter at most once for each kind of
// message.
func (c *chamber) atEase() {
	c.t.Helper()
	for ends, n := range c.dials {
		if n > 2 {
			c.t.Errorf("%s has connected to %s %d times", ends[0], ends[1], n)
		}
	}
}

// succeeded makes another voter lead, and checks that this voter has the entries of the first.
func (c *chamber) succeeded(want quorum.Past) {
	c.t.Helper()
	c.candidates[0].Close()
	var got quorum.Past
	select {
	case term := <-c.candidates[1].Terms():
		got = term.term.Past
	case term := <-c.candidates[2].Terms():
		got = term.term.Past
	case <-time.After(lease):
		c.t.Fatal("there is no leader")
	}
	if !bytes.Equal(got.Snapshot, want.Snapshot) || !slices.EqualFunc(got.Entries, want.Entries, bytes.Equal) {
		c.t.Errorf("the next one has a snapshot of %d bytes and %d entries", len(got.Snapshot), len(got.Entries))
	}
}

// TestALongSnapshotOnASlowNetwork sends a snapshot that takes longer than an election and a lease.
// The leader leads all the time, and confirms its leadership as fast as without the snapshot.
func TestALongSnapshotOnASlowNetwork(t *testing.T) {
	confer(t, func(t *testing.T, c *chamber) {
		term := c.first()
		c.vote(term, c.candidates[0], c.candidate(), c.candidate())
		past := quorum.Past{Snapshot: make([]byte, 6<<20)}
		commitAll(t, term, past)
		synctest.Wait()
		c.uplink["n1"].rate.Store(256 << 10)
		ended := make(chan struct{})
		defer func() { <-ended }()
		over := make(chan struct{})
		defer close(over)
		go func() {
			defer close(ended)
			for {
				began := time.Now()
				if err := commit(term, nil); err != nil || time.Since(began) > lease/election.ElectionsPerLease/2 {
					t.Errorf("%v after %v", err, time.Since(began))
				}
				select {
				case <-time.After(lease / 100):
				case <-over:
					return
				}
			}
		}()
		all := append(slices.Clone(c.candidates), c.candidate(), c.candidate())
		if took := c.vote(term, all...); took < 2*lease || took > 2*wire.PingAfter {
			t.Errorf("they vote after %v", took)
		}
		c.atEase()
	})
}

// TestACutWhileANewVoterIsCaughtUp cuts off a new voter while it receives the log. The voter must
// receive the rest after the cut.
func TestACutWhileANewVoterIsCaughtUp(t *testing.T) {
	confer(t, func(t *testing.T, c *chamber) {
		term := c.first()
		past := quorum.Past{Snapshot: make([]byte, 8<<20), Entries: entries(10, 100<<10)}
		commitAll(t, term, past)
		c.uplink["n1"].rate.Store(1 << 20)
		late := c.candidate()
		time.AfterFunc(5*time.Second, func() { c.part(late.cfg.Node) })
		time.AfterFunc(5*time.Second+lease, func() { c.part() })
		c.vote(term, c.candidates[0], late)
		c.uplink["n1"].rate.Store(0)
		c.vote(term, c.candidates[0], late, c.candidate())
		c.succeeded(past)
	})
}

// TestQueuesEnd checks that a queue ends when no more messages for its voter follow.
func TestQueuesEnd(t *testing.T) {
	confer(t, func(t *testing.T, c *chamber) {
		term := c.first()
		first := c.candidates[0]
		for range 5 {
			c.vote(term, first, c.candidate(), c.candidate())
		}
		commitAll(t, term, quorum.Past{Entries: entries(3, 100)})
		time.Sleep(2*wire.PingAfter + time.Second)
		synctest.Wait()
		for id := range first.election.Backlog() {
			if !slices.ContainsFunc(first.election.Others(), func(v quorum.Voter) bool { return v.ID == id }) {
				t.Errorf("there is a queue for %d, which is not a voter", id)
			}
		}
	})
}

// TestAFullQueueOfAVoter checks that a full queue drops further messages.
func TestAFullQueueOfAVoter(t *testing.T) {
	confer(t, func(t *testing.T, c *chamber) {
		term := c.first()
		c.vote(term, c.candidates[0], c.candidate(), c.candidate())
		c.part("n3")
		commitAll(t, term, quorum.Past{Entries: entries(40, 1<<20)})
		for id, size := range c.candidates[0].election.Backlog() {
			if size > election.MaxBacklog+2<<20 {
				t.Errorf("%d bytes wait for voter %d", size, id)
			}
		}
		c.part()
		time.Sleep(lease)
		c.vote(term, c.candidates[0], c.candidates[2])
	})
}
