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

	"github.com/golaunch/golaunch/internal/process/proc/internal/cgroup"
	"github.com/golaunch/golaunch/internal/process/proc/internal/sweep"
	"github.com/golaunch/golaunch/internal/process/procfs"
)

// Signal sends a signal to the processes of each process group that catch the signal, or to the
// whole group if none catches it. It includes processes whose Start has not returned yet.
func (sc *Scope) Signal(sig os.Signal) {
	number, ok := sig.(syscall.Signal)
	if !ok {
		return
	}
	f := familyOf(sc.started())
	sc.living(func(p *Process) {
		found := f.catchers(p.pid, number)
		for _, h := range open(found) {
			h.Signal(number)
			h.Close()
		}
		if len(found) == 0 {
			p.signalGroup(number)
		}
	})
}

// started returns the trail once no Start is under way.
func (sc *Scope) started() sweep.Trail {
	sc.forks.asking.Lock()
	defer sc.forks.asking.Unlock()
	sc.sup.table.forks.Lock()
	defer sc.sup.table.forks.Unlock()
	return sc.trail()
}

// living calls f for each process. It does nothing if the scope has ended, because the numbers may
// be reused.
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

// Stop sends SIGCONT and a signal to the processes of each rank that can act on the signal, see
// [Process.ask]. If heard is set, these processes have already had the signal and do not get it
// again. When they have ended, the other processes of the rank get SIGTERM. Stop waits until all
// processes in these groups have exited or the grace period is over, and kills the remaining
// processes. It returns when the scope is empty; the error names processes that outlive SIGKILL for
// two minutes. No process can be started any more.
func (sc *Scope) Stop(sig syscall.Signal, heard bool, grace time.Duration) error {
	deadline := time.Now().Add(grace)
	sc.bar()
	trail := sc.trail()
	f := sync.OnceValue(func() family { return familyOf(trail) })
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

// Kill kills everything at once, and ends the grace period of a Stop that is under way. It returns
// when the scope is empty, with the same error as Stop.
func (sc *Scope) Kill() error {
	sc.bar()
	sc.hurry()
	return sc.end()
}

// Close kills the remaining processes, waits until the scope is empty, and removes its cgroup.
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
	sc.sup.guard.Drop(sc.marker)
	if sc.group.dir == "" {
		return nil
	}
	return errors.Join(unix.Close(sc.group.fd), cgroup.Remove(sc.group.dir))
}

// bar refuses new processes, waits for the processes that are being forked, and ends the processes
// that wait for a command.
func (sc *Scope) bar() {
	defer sc.Dismiss()
	sc.forks.asking.Lock()
	defer sc.forks.asking.Unlock()
	sc.sup.table.forks.Lock()
	defer sc.sup.table.forks.Unlock()
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.barred = true
}

// awaitLeaders waits for all processes that were started. It returns false if the deadline passes
// or rush is closed first.
func (sc *Scope) awaitLeaders(deadline time.Time, rush <-chan struct{}) bool {
	late := time.After(time.Until(deadline))
	for _, p := range sc.procs {
		select {
		case <-p.done:
		case <-late:
			return false
		case <-rush:
			return false
		}
	}
	return true
}

// awaitGroups waits for the remaining processes of the groups that got SIGTERM: a shell dies of
// SIGTERM at once, while the training program that the shell started still writes its checkpoint.
func (sc *Scope) awaitGroups(deadline time.Time) {
	found := sc.trail()
	for {
		left := found.Grouped()
		if len(left) == 0 || !procfs.AwaitAll(left, deadline, sc.rush) {
			return
		}
	}
}

// end kills all processes and waits until none is left. Then the numbers of the processes may be
// reused.
func (sc *Scope) end() error {
	sc.ending.Lock()
	defer sc.ending.Unlock()
	if sc.ended {
		return nil
	}
	sc.killed.Store(true)
	deadline := time.Now().Add(procfs.KillLimit)
	found := sc.trail()
	err := found.Kill()
	// Wait for the leaders first. When they are dead, the cgroup is often empty too, but the kernel
	// delays the event that says so by up to 10 ms.
	if !sc.awaitLeaders(deadline, nil) {
		err = procfs.Survivors(nil)
	}
	if err = cmp.Or(sweep.KillAll([]sweep.Trail{found}, sc.sup.orphansOf(sc), deadline), sc.collect(deadline), err); err != nil {
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
		sc.sup.table.reap(p.pid)
	}
	sc.sup.mu.Lock()
	defer sc.sup.mu.Unlock()
	sc.sup.scopes[sc] = false
}
