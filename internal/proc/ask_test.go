package proc

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// forker is a Forker that makes nothing, and says so when it is told to.
type forker struct{ asked, answer chan struct{} }

func (f forker) Fork(*Command, []string, []uintptr, int) (pid int, run func(), err error) {
	close(f.asked)
	<-f.answer
	return 0, nil, errors.New("it cannot")
}

// A scope whose Forker does not answer holds up none but itself.
func TestSlowForker(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		s := newSupervisor(t, opts)
		slow := forker{make(chan struct{}), make(chan struct{})}
		waiting := newTestScope(t, s)
		started := make(chan error, 1)
		go func() {
			c := shell("exit 0", nil)
			c.Forker = slow
			p, err := waiting.Start(c)
			if err == nil {
				<-p.Done()
				_, err = p.Forked()
			}
			started <- err
		}()
		<-slow.asked
		other := newTestScope(t, s)
		done := make(chan error, 1)
		go func() {
			_, err := other.Start(shell("sleep 1000", nil))
			other.Signal(unix.SIGUSR1)
			s.reapOrphans()
			done <- errors.Join(err, other.Close())
		}()
		select {
		case err := <-done:
			must(t, err)
		case <-time.After(patience):
			t.Error("a scope waits for the Forker of another")
		}
		close(slow.answer)
		if err := <-started; err == nil || err.Error() != "it cannot" {
			t.Errorf("the process was started because %v", err)
		}
	})
}

// A process of which others are forked may outlive all scopes, and what it has marked stays with it; an orphan without a mark does not.
func TestOrphansBesideAServer(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		s := newSupervisor(t, opts)
		hidden, marked := newOutput(t), newOutput(t)
		server := newTestScope(t, s)
		c := shell(`(setsid sh -c "echo ready; exec sleep 1000" &); exec sleep 1000 >/dev/null`, marked.w)
		c.Serves = true
		start(t, server, c)
		marked.line()
		ranks := newTestScope(t, s)
		start(t, ranks, shell(`(env -i setsid sh -c "trap '' TERM; echo ready; exec sleep 1000" &); exit 0`, hidden.w))
		hidden.line()
		must(t, ranks.Close())
		hidden.end()
		if n, err := unix.Poll([]unix.PollFd{{Fd: endFD(marked), Events: unix.POLLIN}}, 0); err != nil || n != 0 {
			t.Error("what a server has started has ended with another scope")
		}
		must(t, server.Close())
		marked.end()
	})
}
