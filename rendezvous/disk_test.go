package rendezvous

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/process/asyncwriter"
	"github.com/golaunch/golaunch/rendezvous/internal/log"
)

// slow is a file that keeps nothing until ready says so.
type slow struct {
	log.Storage
	ready func() (there bool)
}

func (d slow) Keep(r log.Round, done func(error)) {
	go func() {
		if d.ready() {
			d.Storage.Keep(r, done)
		} else {
			done(errors.New("this machine is off"))
		}
	}()
}

// slow makes the disk under a coordinator's log slow.
func (c *Coordinator) slow(ready func() bool) {
	c.post(func() { c.log.Storage = slow{c.log.Storage, ready} })
}

// TestASlowDisk makes the log's disk accept nothing for longer than the lease. No node is lost.
// Events in that time take effect once the log has stored them.
func TestASlowDisk(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1, n2 := h.joinAs(gpus(1, 1), forever), h.joinAs(gpus(2, 1), forever)
		a := h.user().submit(detached(task("a", 1, 1)))
		b := h.user().submit(detached(task("b", 1, 1)))
		wakes := time.Now().Add(lease + killTime + time.Second)
		h.c.slow(func() bool { time.Sleep(time.Until(wakes)); return true })
		n1.exitJob("a", 0, 1)
		n2.cable.newest().timeout() // the agent comes back, and is welcomed
		time.Sleep(time.Until(wakes) - time.Second)
		if got := n1.runs() + ", " + n2.runs(); got != ", b0" {
			t.Errorf("%s run while the disk takes nothing, want b0", got)
		}
		if s := a.all(); !strings.HasSuffix(s, "attempt 0 runs") {
			t.Errorf("before it was on disk, a client got %q", s)
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

// TestADiskThatHangs checks that the coordinator does not wait for a disk that hangs. When the disk
// works again, the coordinator writes its log again.
func TestADiskThatHangs(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1, n2 := h.joinAs(gpus(1, 1), forever), h.joinAs(gpus(2, 1), forever)
		a := h.user().submit(detached(task("a", 1, 1)))
		h.user().submit(detached(task("b", 1, 1)))
		wake := make(chan struct{})
		h.c.slow(func() bool { <-wake; return true })
		n1.exitJob("a", 0, 1)
		time.Sleep(log.MaxWrite + 5*time.Second)
		if got := n1.runs(); got != "a1" {
			t.Errorf("%q run", got)
		}
		want(t, h.warned(), "the coordinator's log cannot be written at the moment: the disk does not keep up; jobs go on, but until it can, they end with this coordinator")
		n1.exitJob("a", 1, 0)
		if r := a.over(t); r.Code != 0 {
			t.Errorf("%+v", r)
		}
		close(wake)
		synctest.Wait()
		want(t, h.warned(), "the coordinator's log can be written again")
		h.crash()
		h.start()
		time.Sleep(5 * time.Second)
		n2.exitJob("b", 0, 0)
		if r := h.user().watch("b").over(t); r.Code != 0 || r.Attempts != 1 {
			t.Errorf("b: %+v", r)
		}
		if r := h.user().watch("a").over(t); r.Code != 0 || r.Restarts != 1 {
			t.Errorf("a, which was not written for long: %+v", r)
		}
	})
}

// TestALogThatCannotBeWritten checks that the coordinator removes such a log, because it would
// mislead a later coordinator. The log starts again when it can be written.
func TestALogThatCannotBeWritten(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 1), forever)
		a := h.user().submit(detached(task("a", 1, 1)))
		var full atomic.Bool
		full.Store(true)
		h.c.slow(func() bool {
			if full.Load() {
				os.Remove(h.path())
			}
			return !full.Load()
		})
		n1.exitJob("a", 0, 1)
		time.Sleep(5 * time.Second)
		if got := n1.runs(); got != "a1" {
			t.Errorf("%q run", got)
		}
		want(t, h.warned(), "the coordinator's log cannot be written at the moment: this machine is off")
		time.Sleep(time.Minute)
		full.Store(false)
		time.Sleep(time.Minute)
		want(t, h.warned(), "the coordinator's log can be written again")
		h.crash()
		h.start()
		time.Sleep(5 * time.Second)
		n1.exitJob("a", 1, 0)
		if r := h.user().watch("a").over(t); r.Code != 0 || r.Restarts != 1 {
			t.Errorf("%+v\n%s", r, a.all())
		}
	})
}

// stuck is a writer that blocks until it is released.
type stuck struct {
	io.Writer
	wake chan struct{}
}

func (s stuck) Write(b []byte) (int, error) {
	<-s.wake
	return s.Writer.Write(b)
}

// TestASlowDiskForPeople has a journal on a slow disk. The disk must not delay anything for long,
// not even the end of a job.
func TestASlowDiskForPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{})
		w := newWorldOf(t.Context(), t, Config{Journal: stuck{io.Discard, wake}}, one(1))
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

// TestOutputWithoutReaders checks that a coordinator still answers its agents while no program
// reads its messages to people. Later the coordinator says how many lines it did not show.
func TestOutputWithoutReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake, notes := make(chan struct{}), 0
		w := &world{t: t, lives: map[[2]string]string{}, begun: map[[2]string]int{}}
		w.serve(Config{Note: func(string) { <-wake; notes++ }})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { _, err := w.c.Run(ctx); ended <- err }()
		h := &hosted{world: w}
		n1 := h.joinAs(gpus(1, 1), forever)
		h.user().submit(detached(task("a", 1, 1)))
		w.c.post(func() {
			for range 2 * asyncwriter.Limit {
				w.c.say("a line")
			}
		})
		time.Sleep(time.Hour)
		if got := n1.runs(); got != "a0" {
			t.Errorf("%q run after an hour without a reader", got)
		}
		close(wake)
		synctest.Wait()
		if notes < asyncwriter.Limit || notes > asyncwriter.Limit+10 || !strings.Contains(strings.Join(w.warnings, "\n"), "messages are not shown") {
			t.Errorf("%d notes, warnings %q", notes, w.warnings)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		n1.Close("")
	})
}

// slowDisk makes the disk accept nothing for a while. If the coordinator is killed in that time,
// its last messages are lost.
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

// prompt reports whether the coordinator answers at once.
func (s *sim) prompt() bool { return s.up.Load() && int64(time.Since(s.began)) > s.idle.Load() }
