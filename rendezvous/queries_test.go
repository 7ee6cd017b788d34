package rendezvous

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/report"
)

// page is what a client has read of a job's output.
type page struct {
	*session.LogReader
	done chan struct{}

	mu      sync.Mutex
	texts   map[int]string // by rank
	nodes   map[int]string
	missing []string
	err     error
}

func (u *user) read(id string, f report.LogFilter) *page {
	u.h.t.Helper()
	r, err := u.Logs(u.h.t.Context(), id, f)
	if err != nil {
		u.h.t.Fatal(err)
	}
	p := &page{LogReader: r, done: make(chan struct{}), texts: map[int]string{}, nodes: map[int]string{}}
	u.h.t.Cleanup(func() {
		<-p.done // with the test's context
		r.Close()
	})
	go func() {
		defer close(p.done)
		for p.take(r.Next(u.h.t.Context())) {
		}
	}()
	synctest.Wait()
	return p
}

func (p *page) take(c report.LogChunk, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case errors.Is(err, io.EOF):
		return false
	case err != nil:
		p.err = err
		return false
	case c.Missing != "":
		p.missing = append(p.missing, c.Missing)
	default:
		p.texts[c.Rank] += string(c.Data)
		p.nodes[c.Rank] = c.Node
	}
	return true
}

// has checks what the client has read from each rank so far.
func (p *page) has(t *testing.T, texts ...string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for rank, text := range texts {
		if p.texts[rank] != text {
			t.Errorf("read %q of rank %d, want %q", p.texts[rank], rank, text)
		}
	}
}

var following = report.LogFilter{Attempt: -1, Follow: true}

func TestFollowedLogs(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 1), forever)
		u := h.user()
		s := u.submit(task("a", 2, 1))
		p := u.read("a", following)
		n2 := h.joinAs(gpus(2, 1), forever)
		synctest.Wait()
		n1.write("a", 0, "hello from rank 0\n")
		n2.write("a", 1, "hello ")
		synctest.Wait()
		p.has(t, "hello from rank 0\n", "hello ")
		if p.nodes[0] != "n1" || p.nodes[1] != "n2" {
			t.Errorf("nodes %v", p.nodes)
		}
		n2.write("a", 1, "from rank 1\n")
		n1.exitJob("a", 0, 0)
		n2.exitJob("a", 0, 0)
		s.over(t)
		if <-p.done; p.err != nil || p.missing != nil {
			t.Errorf("%v, missing %v", p.err, p.missing)
		}
		p.has(t, "hello from rank 0\n", "hello from rank 1\n")
		past := u.read("a", report.LogFilter{Attempt: -1, From: []report.LogPosition{{Rank: 0, Stream: 1, Offset: 6}}})
		<-past.done
		past.has(t, "from rank 0\n", "hello from rank 1\n")
	})
}

func TestLogsOfLostAndAbsentNodes(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1, n2 := h.joinAs(gpus(1, 1), forever), h.joinAs(gpus(2, 1), forever)
		u := h.user()
		s := u.submit(task("a", 2, 1))
		p := u.read("a", following)
		n1.write("a", 0, "one ")
		n2.write("a", 1, "two ")
		synctest.Wait()
		n2.die()
		synctest.Wait()
		again := h.joinAs(gpus(2, 1), forever)
		time.Sleep(5 * time.Second)
		if n1.runs() != "a1" || again.runs() != "a1" {
			t.Fatalf("%s and %s run\n%s", n1.runs(), again.runs(), s.all())
		}
		again.write("a", 1, "two three")
		synctest.Wait()
		p.has(t, "one ", "two three")
		n1.exitJob("a", 1, 0)
		again.exitJob("a", 1, 0)
		s.over(t)
		<-p.done
		if p.missing != nil {
			t.Errorf("missing %v of nodes that were there at the end", p.missing)
		}
		again.die()
		synctest.Wait()
		past := u.read("a", report.LogFilter{Attempt: -1})
		<-past.done
		past.has(t, "one ", "")
		want(t, strings.Join(past.missing, "\n"), "node n2 is not there any more")
	})
}

// TestLogsOverABrokenConnection checks that a reader loses no byte, and gets no byte twice.
func TestLogsOverABrokenConnection(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1, n2 := h.joinAs(gpus(1, 1), forever), h.joinAs(gpus(2, 1), forever)
		u := h.user()
		s := u.submit(detached(task("a", 2, 1)))
		p := u.read("a", following)
		var texts [2]string
		for i := range 20 {
			for rank, n := range []*agent{n1, n2} {
				line := fmt.Sprintf("line %d of rank %d\n", i, rank)
				texts[rank] += line
				n.write("a", rank, line)
			}
			switch i % 4 {
			case 1:
				n2.cable.newest().timeout()
			case 2:
				u.cable.newest().timeout()
			case 3:
				synctest.Wait()
			}
		}
		time.Sleep(2 * time.Second)
		p.has(t, texts[:]...) // while the job runs
		h.crash()
		n1.write("a", 0, "meanwhile\n")
		h.start()
		time.Sleep(2 * time.Second)
		p.has(t, texts[0]+"meanwhile\n", texts[1])
		n1.exitJob("a", 0, 0)
		n2.exitJob("a", 0, 0)
		s.over(t)
		if <-p.done; p.err != nil || p.missing != nil {
			t.Errorf("%v, missing %v", p.err, p.missing)
		}
		p.has(t, texts[0]+"meanwhile\n", texts[1])
	})
}

// TestUnheardQuestionForLogs sends a question into a connection that is already dead.
func TestUnheardQuestionForLogs(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 1), forever)
		u := h.user()
		u.submit(task("a", 1, 1))
		n1.write("a", 0, "here\n")
		n1.cable.cut()
		p := u.read("a", report.LogFilter{Attempt: -1})
		n1.cable.mend()
		time.Sleep(lease)
		p.has(t, "here\n")
		select {
		case <-p.done:
		default:
			t.Error("the reading does not end")
		}
	})
}

// TestSlowReader has a reader that reads nothing. Another reader and the jobs continue.
func TestSlowReader(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 1), forever)
		u := h.user()
		s := u.submit(task("a", 1, 1))
		slow, err := h.user().Logs(t.Context(), "a", following)
		if err != nil {
			t.Fatal(err)
		}
		defer slow.Close()
		synctest.Wait()
		text := strings.Repeat("0123456789abcde\n", 64<<10)
		n1.book("a").page = 32 << 10
		n1.write("a", 0, text)
		synctest.Wait()
		p := u.read("a", following)
		if p.has(t, text); len(p.texts[0]) != len(text) {
			t.FailNow()
		}
		n1.exitJob("a", 0, 0)
		if r := s.over(t); r.Code != 0 {
			t.Errorf("%+v", r)
		}
		<-p.done
		size := 0
		for {
			c, err := slow.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			size += len(c.Data)
		}
		if size != len(text) {
			t.Errorf("the slow one got %d bytes of %d", size, len(text))
		}
	})
}

// TestSharedFileSystem has two nodes deliver the same files.
func TestSharedFileSystem(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1, n2 := h.joinAs(gpus(1, 1), forever), h.joinAs(gpus(2, 1), forever)
		n2.books["a"] = n1.book("a")
		u := h.user()
		s := u.submit(task("a", 2, 1))
		p := u.read("a", following)
		for range 5 {
			n1.write("a", 0, "zero zero\n")
			n2.write("a", 1, "one one\n")
			synctest.Wait()
		}
		n1.exitJob("a", 0, 0)
		n2.exitJob("a", 0, 0)
		s.over(t)
		<-p.done
		p.has(t, strings.Repeat("zero zero\n", 5), strings.Repeat("one one\n", 5))
	})
}

// TestPositionsOfTheLargestJob has two files of each of 100,000 ranks, on nodes with the longest
// names. All positions go to the coordinator, and each node gets its own.
func TestPositionsOfTheLargestJob(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		h.joinAs(gpus(1, 1), forever)
		h.user().submit(detached(task("a", 1, 1)))
		from := map[string][]report.LogPosition{}
		for rank := range 8 * mostNodes {
			node := fmt.Sprintf("%0253d", rank/8)
			for stream := 1; stream <= 2; stream++ {
				from[node] = append(from[node], report.LogPosition{Attempt: big, Rank: rank, Stream: stream, Offset: 8 << 30})
			}
		}
		stream, err := h.raw(&cable{dial: h.connect}).Inquire(t.Context())
		if err == nil {
			q := wire.Inquiry{Job: "a", Question: wire.Question{About: wire.AboutLogs, Logs: following}}
			err = wire.Put(stream, wire.FromInquiry(q, from))
		}
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := h.asked(fmt.Sprintf("%0253d", 12_499)); len(got) != 16 {
			t.Errorf("%d positions of the last node", len(got))
		}
	})
}

// asked returns the positions from which a node must read, for the only query.
func (h *hosted) asked(node string) []report.LogPosition {
	at, _ := ask(h.c, func() ([]report.LogPosition, error) {
		for _, d := range h.c.queries.open {
			return d.questionFor(node).Logs.From, nil
		}
		return nil, nil
	})
	return at
}

// TestPositionsAfterABrokenConnection checks that a client sends its positions to the coordinator,
// and that each node gets only its own.
func TestPositionsAfterABrokenConnection(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1, n2 := h.joinAs(gpus(1, 1), forever), h.joinAs(gpus(2, 1), forever)
		u := h.user()
		s := u.submit(detached(task("a", 2, 1)))
		p := u.read("a", following)
		n1.write("a", 0, "zero ")
		n2.write("a", 1, "one ")
		shared := report.LogPosition{Attempt: 7, Rank: 0, Stream: 2}
		for _, n := range []*agent{n1, n2} {
			n.book("a").write(shared, "shared ")
			synctest.Wait()
		}
		u.cable.newest().timeout()
		synctest.Wait()
		time.Sleep(time.Second)
		shared.Offset = int64(len("shared "))
		for node, own := range map[string]report.LogPosition{"n1": {Stream: 1, Offset: 5}, "n2": {Rank: 1, Stream: 1, Offset: 4}} {
			if got := h.asked(node); !slices.Equal(got, []report.LogPosition{own, shared}) {
				t.Errorf("%s is asked from %v", node, got)
			}
		}
		n1.write("a", 0, "zero")
		n2.write("a", 1, "one")
		n1.exitJob("a", 0, 0)
		n2.exitJob("a", 0, 0)
		s.over(t)
		if <-p.done; p.err != nil || p.missing != nil {
			t.Errorf("%v, missing %v", p.err, p.missing)
		}
		p.has(t, p.texts[0], "one one")
		if got := p.texts[0]; len(got) != len("zero shared zero") {
			t.Errorf("read %q of rank 0", got)
		}
	})
}

// TestMorePositionsThanAMessageHas checks that the coordinator drops positions that do not fit into
// the question for a node.
func TestMorePositionsThanAMessageHas(t *testing.T) {
	many := map[string][]report.LogPosition{"n1": make([]report.LogPosition, 2*wire.MaxPositions)}
	if got := (&query{Inquiry: wire.Inquiry{Question: wire.Question{About: wire.AboutLogs}}, known: many}).questionFor("n1").Logs.From; len(got) != wire.MaxPositions {
		t.Errorf("a node is asked from %d positions", len(got))
	}
}

func TestFollowedLogsOfAWaitingJob(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		u := h.user()
		u.submit(task("a", 1, 1))
		p := u.read("a", following)
		past := u.read("a", report.LogFilter{Attempt: -1})
		<-past.done
		select {
		case <-p.done:
			t.Fatal("the reading ended before the job")
		default:
		}
		if _, err := u.Stop(t.Context(), "a", 1, "enough"); err != nil {
			t.Fatal(err)
		}
		if <-p.done; p.err != nil || p.missing != nil {
			t.Errorf("%v, missing %v", p.err, p.missing)
		}
	})
}
