package rendezvous

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
)

// hearing collects a client's answers to a question.
type hearing struct {
	mu   sync.Mutex
	said []string
	err  error
	over bool
	end  context.CancelFunc
}

func (u *user) inquire(q wire.Inquiry) *hearing {
	ctx, cancel := context.WithCancel(u.h.t.Context())
	h := &hearing{end: cancel}
	u.h.t.Cleanup(cancel)
	go func() {
		for a, err := range u.Inquire(ctx, q) {
			h.mu.Lock()
			switch {
			case err != nil:
				h.err = err
			case a.Missing != "":
				h.said = append(h.said, a.Missing)
			default:
				h.said = append(h.said, a.Node+" "+string(a.Facts))
			}
			h.mu.Unlock()
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.over = true
	}()
	synctest.Wait()
	return h
}

func (h *hearing) has(t *testing.T, over bool, want ...string) {
	t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	got := slices.Sorted(slices.Values(h.said))
	if !slices.Equal(got, want) || h.over != over {
		t.Errorf("got %q, over %v, %v; want %q, over %v", got, h.over, h.err, want, over)
	}
}

// says makes an agent answer the next question with words.
func (a *agent) says(words ...string) {
	next := make(chan string, 16)
	for _, w := range words {
		next <- w
	}
	a.words.Store(&next)
}

var (
	ping  = wire.Question{About: wire.AboutPing}
	watch = wire.Question{About: wire.AboutSamples, Samples: wire.SampleFilter{Every: time.Second}}
)

// TestInquiry asks all nodes of a cluster, the nodes of a job, and one node. The answer names nodes
// that do not answer in time.
func TestInquiry(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1, n2 := h.joinAs(gpus(1, 1), forever), h.joinAs(gpus(2, 1), forever)
		u := h.user()
		u.submit(detached(task("a", 1, 1)))
		name1, name2 := n1.Session.Node.Name, n2.Session.Node.Name
		busy, idle := n1, name2
		if n2.runs() != "" {
			busy, idle = n2, name1
		}
		answers := func() {
			for _, a := range []*agent{n1, n2} {
				a.says("one", "two")
				close(*a.words.Load())
			}
		}
		answers()
		u.inquire(wire.Inquiry{Question: ping}).has(t, true, name1+" one", name1+" two", name2+" one", name2+" two")
		answers()
		u.inquire(wire.Inquiry{Job: "a", Question: ping}).has(t, true, busy.Session.Node.Name+" one", busy.Session.Node.Name+" two")
		answers()
		u.inquire(wire.Inquiry{Question: ping, Nodes: []string{idle}}).has(t, true, idle+" one", idle+" two")

		n1.says("one")
		n2.says("one", "two")
		close(*n2.words.Load())
		late := u.inquire(wire.Inquiry{Question: ping, Within: 2 * time.Second})
		time.Sleep(2*time.Second - time.Millisecond)
		late.has(t, false, name1+" one", name2+" one", name2+" two")
		time.Sleep(2 * time.Millisecond)
		late.has(t, true, name1+" one", name2+" one", name2+" two", fmt.Sprintf("node %s did not answer within 2s", name1))

		n1.cable.cut()
		n2.says("one")
		close(*n2.words.Load())
		cut := u.inquire(wire.Inquiry{Question: ping, Within: time.Second})
		time.Sleep(time.Second + time.Millisecond)
		cut.has(t, true, name2+" one", fmt.Sprintf("node %s did not answer within 1s", name1))
		if none := u.inquire(wire.Inquiry{Job: "b", Question: ping}); none.err == nil || !strings.Contains(none.err.Error(), "no job") {
			t.Errorf("a job that is not there: %v", none.err)
		}
		for _, strange := range []wire.Inquiry{{Question: wire.Question{}}, {Job: "a"}, {Question: wire.Question{About: wire.AboutStacks}}} {
			if q := u.inquire(strange); q.err == nil || len(q.said) > 0 {
				t.Errorf("%+v: %q, %v", strange, q.said, q.err)
			}
		}
		u.inquire(wire.Inquiry{Question: ping, Nodes: []string{"n99"}}).has(t, true, "node n99 has no part in this")
		n1.cable.mend()
		time.Sleep(lease)
		h.idle()
	})
}

// TestInquiryAfterALoss asks about a job that has lost a node. Only the job's remaining nodes are
// asked.
func TestInquiryAfterALoss(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		agents := map[string]*agent{}
		for i := range 2 {
			a := h.joinAs(gpus(i+1, 1), forever)
			agents[a.Session.Node.Name] = a
		}
		u := h.user()
		u.submit(detached(task("a", 1, 1)))
		lost, left := "n1", "n2"
		if agents[left].runs() != "" {
			lost, left = left, lost
		}
		agents[lost].cable.cut()
		time.Sleep(4 * lease)
		if agents[left].runs() == "" {
			t.Fatalf("the job has not moved to %s", left)
		}
		agents[left].says("here")
		close(*agents[left].words.Load())
		u.inquire(wire.Inquiry{Job: "a", Question: ping}).has(t, true, left+" here")
		h.idle()
	})
}

// TestInquiryThatGoesOn checks that an inquiry with repeated answers includes nodes that join,
// leave and return, until the client stops asking.
func TestInquiryThatGoesOn(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 1), forever)
		n1.says("one")
		heard := h.user().inquire(wire.Inquiry{Question: watch})
		heard.has(t, false, "n1 one")
		n2 := h.joinAs(gpus(2, 1), forever)
		n2.says("new")
		synctest.Wait()
		*n2.words.Load() <- "newer"
		heard.has(t, false, "n1 one", "n2 new", "n2 newer")
		n1.cable.cut()
		n1.cable.mend() // this mends new connections
		time.Sleep(lease)
		for range 4 { // a node that delivered before the cut may take one of these
			*n1.words.Load() <- "back"
		}
		synctest.Wait()
		heard.mu.Lock()
		if heard.over || !slices.Contains(heard.said, "n1 back") {
			t.Errorf("got %q, over %v, from a node that was away", heard.said, heard.over)
		}
		heard.mu.Unlock()
		heard.end()
		synctest.Wait()
		h.idle()
	})
}

// TestInquiryAboutAJobThatEnds checks that an inquiry about a job ends with the job, although its
// nodes would send more answers.
func TestInquiryAboutAJobThatEnds(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 1), forever)
		u := h.user()
		u.submit(detached(task("a", 1, 1)))
		n1.says("one")
		heard := u.inquire(wire.Inquiry{Job: "a", Question: watch})
		heard.has(t, false, "n1 one")
		n1.exitJob("a", 0, 0)
		heard.has(t, true, "n1 one")
		h.idle()
	})
}

// idle checks that the coordinator keeps nothing about an ended question.
func (h *hosted) idle() {
	h.t.Helper()
	n, _ := ask(h.c, func() (int, error) { return len(h.c.queries.open), nil })
	if n != 0 {
		h.t.Errorf("%d deliveries are left", n)
	}
}
