package rendezvous

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a disk that takes nothing until ready says so. One that is not there then has not taken anything.
type slow struct {
	io.Writer
	ready func() (there bool)
}

func (d slow) Write(b []byte) (int, error) {
	if !d.ready() {
		return 0, errors.New("this machine is off")
	}
	return d.Writer.Write(b)
}

// slow has the disk under the journals of a coordinator be slow.
func (c *Coordinator) slow(ready func() bool) {
	c.post(func() {
		for _, r := range c.jobs {
			if j, ok := r.journal.(*diskJournal); ok {
				c.disk.write(func() { j.out.w = slow{j.out.w, ready} })
			}
		}
	})
}

// TestASlowDisk has the disk of the store take nothing for longer than the lease: no node is lost, and what happens meanwhile has
// its consequences once it is written.
func TestASlowDisk(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1, n2 := h.joinAs(gpus(1, 1), forever), h.joinAs(gpus(2, 1), forever)
		a := h.user().submit(detached(task("a", 1, 1)))
		b := h.user().submit(detached(task("b", 1, 1)))
		wakes := time.Now().Add(lease + killTime + time.Second)
		h.c.slow(func() bool { time.Sleep(time.Until(wakes)); return true })
		n1.exitJob("a", 0, 1)
		n2.cable.newest().timeout() // it comes back, and is welcomed
		time.Sleep(time.Until(wakes) - time.Second)
		if got := n1.runs() + ", " + n2.runs(); got != ", b0" {
			t.Errorf("%s run while the disk takes nothing, want b0", got)
		}
		if s := a.all(); !strings.HasSuffix(s, "attempt 0 runs") {
			t.Errorf("before it was written, a client heard %q", s)
		}
		time.Sleep(5 * time.Second)
		if got := n1.runs() + ", " + n2.runs(); got != "a1, b0" {
			t.Errorf("%s run, want a1, b0", got)
		}
		n1.exitJob("a", 1, 0)
		n2.exitJob("b", 0, 0)
		if a, b := a.over(t), b.over(t); a.Restarts != 1 || b.Restarts != 0 {
			t.Errorf("%+v, %+v", a, b)
		}
		if text := h.warned(); text != "" {
			t.Errorf("warned: %s", text)
		}
	})
}

// TestADiskThatHangs is not waited for: a job to which something happens is not promised to a later coordinator any more.
func TestADiskThatHangs(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1, n2 := h.joinAs(gpus(1, 1), forever), h.joinAs(gpus(2, 1), forever)
		a := h.user().submit(detached(task("a", 1, 1)))
		h.user().submit(detached(task("b", 1, 1)))
		wake := make(chan struct{})
		h.c.slow(func() bool { <-wake; return true })
		n1.exitJob("a", 0, 1)
		time.Sleep(maxWrite + 5*time.Second)
		if got := n1.runs(); got != "a1" {
			t.Errorf("%q run", got)
		}
		want(t, h.warned(), "the disk does not keep up: a later coordinator will not know of jobs to which something happens before it does",
			"the journal of job a ends here: the disk does not keep up; the job goes on, but ends with this coordinator")
		n1.exitJob("a", 1, 0)
		if r := a.over(t); r.Code != 0 {
			t.Errorf("%+v", r)
		}
		close(wake)
		synctest.Wait()
		if _, err := os.Stat(h.journal("a")); !os.IsNotExist(err) {
			t.Errorf("the journal is still there: %v", err)
		}
		h.crash()
		h.start()
		time.Sleep(5 * time.Second)
		n2.exitJob("b", 0, 0)
		if r := h.user().watch("b").over(t); r.Code != 0 || r.Attempts != 1 {
			t.Errorf("b, to which nothing has happened: %+v", r)
		}
	})
}

// TestTooMuchToWrite is not waited for either.
func TestTooMuchToWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at, wake, over := time.Now(), make(chan struct{}), make(chan func(), 1)
		d := disk{holds: true, post: func(f func()) bool { over <- f; return true }, warn: func(error) {}}
		d.write(func() { <-wake })
		seen := false
		d.then(func() { seen = true })
		written := 0
		for n := range maxWrites {
			if seen {
				t.Fatalf("what follows from the first write was seen with %d to come", n)
			}
			d.write(func() { written++ })
		}
		if !seen || !d.hangs || time.Since(at) != 0 {
			t.Errorf("seen: %t, hangs: %t, after %v", seen, d.hangs, time.Since(at))
		}
		close(wake)
		(<-over)()
		(<-over)()
		if written != maxWrites || d.busy || d.hangs {
			t.Errorf("%d of %d were written", written, maxWrites)
		}
	})
}

// TestASlowDiskForPeople holds up nobody, not even the end of a job for long.
func TestASlowDiskForPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := one(1)
		wake := make(chan struct{})
		s.Journal = slow{io.Discard, func() bool { <-wake; return true }}
		w := newWorldOf(t.Context(), t, Config{}, s)
		at := time.Now()
		a := w.join(1, func(int) (int, bool) { return 0, true })
		if r := <-w.result; r.Code != 0 || time.Since(at) > 3*time.Second {
			t.Errorf("%+v after %v", r, time.Since(at))
		}
		a.leave(t)
		close(wake)
		if len(w.warnings) != 1 || w.warnings[0] != "the end of the journal is not written: the disk hangs" {
			t.Errorf("warnings %q", w.warnings)
		}
	})
}

// slowDisk has the disk take nothing for a while; if the coordinator is killed in that time, its last words are lost.
func (s *sim) slowDisk(d time.Duration) {
	s.tell("the disk of the coordinator takes nothing for %v", d)
	wakes := time.Now().Add(d)
	s.idle.Store(int64(wakes.Sub(s.began)))
	since := s.since.Load()
	s.hosted.c.slow(func() bool {
		time.Sleep(time.Until(wakes))
		return s.up.Load() && s.since.Load() == since
	})
}

// prompt says that the coordinator answers at once.
func (s *sim) prompt() bool { return s.up.Load() && int64(time.Since(s.began)) > s.idle.Load() }
