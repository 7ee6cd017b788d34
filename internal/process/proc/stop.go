package proc

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Signal sends a signal to what catches it of the process group of each process, and to all of a
// group of which nothing does. Processes whose Start has not returned yet are included.
func (sc *Scope) Signal(sig os.Signal) {
	number, ok := sig.(syscall.Signal)
	if !ok {
		return
	}
	f := sc.started().family()
	sc.living(func(p *Process) {
		found := f.catchers(p.pid, number)
		for _, h := range open(found) {
			h.signal(number)
			h.close()
		}
		if len(found) == 0 {
			p.signalGroup(number)
		}
	})
}

// started is the trail with those whose Start has not returned yet.
func (sc *Scope) started() trail {
	sc.asking.Lock()
	defer sc.asking.Unlock()
	sc.sup.forks.Lock()
	defer sc.sup.forks.Unlock()
	return sc.trail()
}

// living calls f for each process unless the scope has ended: until then their numbers mean nothing
// else.
func (sc *Scope) living(f func(*Process)) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.ended {
		return
	}
	for _, p := range sc.procs {
		f(p)
	}
}

// Stop sends SIGCONT, and a signal to the processes of each rank that can act on it, see
// [Process.ask], unless all have heard it from somebody else. What is left of a rank when these
// have ended is sent SIGTERM. Stop waits until all processes in these groups have exited or the
// grace period has passed, and kills what is left, strays included. It returns when the scope is
// empty; the error names the processes that outlive SIGKILL for two minutes. No process can be
// started any more.
func (sc *Scope) Stop(sig syscall.Signal, heard bool, grace time.Duration) error {
	deadline := time.Now().Add(grace)
	sc.bar()
	f := sync.OnceValue(sc.trail().family)
	var asked sync.WaitGroup
	sc.living(func(p *Process) { p.signalGroup(unix.SIGCONT) })
	sc.living(func(p *Process) {
		told := p.ask(sig, heard, f)
		if told == nil {
			return
		}
		asked.Go(func() {
			if awaitEnd(told, deadline, sc.rush) {
				sc.living(func(other *Process) {
					if other == p {
						p.signalGroup(unix.SIGTERM)
					}
				})
			}
		})
	})
	asked.Wait()
	if sc.awaitLeaders(deadline, sc.rush) {
		sc.awaitGroups(deadline)
	}
	return sc.end()
}

// Kill kills everything at once, and with it ends the grace period of a Stop that is under way. It returns as Stop does.
func (sc *Scope) Kill() error {
	sc.bar()
	sc.hurry()
	return sc.end()
}

// Close kills what is left, waits until the scope is empty, and removes its cgroup.
func (sc *Scope) Close() error {
	if err := sc.Kill(); err != nil {
		return err
	}
	sc.ending.Lock()
	defer sc.ending.Unlock()
	if sc.closed {
		return nil
	}
	sc.closed = true
	sc.sup.mu.Lock()
	delete(sc.sup.scopes, sc)
	sc.sup.mu.Unlock()
	sc.sup.guard.drop(sc.marker)
	if sc.cgroup == "" {
		return nil
	}
	return errors.Join(unix.Close(sc.cgroupFD), removeGroup(sc.cgroup))
}

// bar refuses new processes and waits for those that are being forked.
func (sc *Scope) bar() {
	sc.asking.Lock()
	defer sc.asking.Unlock()
	sc.sup.forks.Lock()
	defer sc.sup.forks.Unlock()
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.barred = true
}

// awaitLeaders waits for all processes that were started, and reports whether they ended in time and before rush was closed.
func (sc *Scope) awaitLeaders(deadline time.Time, rush <-chan struct{}) bool {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	for _, p := range sc.procs {
		select {
		case <-p.done:
		case <-timer.C:
			return false
		case <-rush:
			return false
		}
	}
	return true
}

// awaitGroups waits for what else is in the groups that were sent SIGTERM: a shell dies of it at once, while the training program
// that it started still writes its checkpoint.
func (sc *Scope) awaitGroups(deadline time.Time) {
	found := sc.trail()
	for {
		left := found.grouped()
		if len(left) == 0 || !awaitAll(left, deadline, sc.rush) {
			return
		}
	}
}

// end kills all and waits until nothing is left; then the numbers of the processes may be reused.
func (sc *Scope) end() error {
	sc.ending.Lock()
	defer sc.ending.Unlock()
	if sc.ended {
		return nil
	}
	sc.killed.Store(true)
	deadline := time.Now().Add(killLimit)
	found := sc.trail()
	err := found.kill()
	// When the leaders are dead, the cgroup is often empty as well: the kernel delays the event that says so by up to 10 ms.
	if !sc.awaitLeaders(deadline, nil) {
		err = errSurvivors
	}
	if err = cmp.Or(hunt([]trail{found}, sc.sup.orphans(sc), deadline), sc.collect(deadline), err); err != nil {
		return fmt.Errorf("scope %s: %w", sc.name, err)
	}
	sc.reap()
	return nil
}

func (sc *Scope) reap() {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.ended = true
	for _, p := range sc.procs {
		sc.sup.reap(p.pid)
	}
	sc.sup.end(sc)
}
