package proc

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Linger waits for at most the given time until nothing of the scope runs, and names what does
// then. All that was started must have ended: this is about what it has left. It returns at once
// when the scope is stopped or killed.
func (sc *Scope) Linger(limit time.Duration) ([]string, error) {
	found := sc.trail()
	deadline := time.Now().Add(limit)
	for {
		left, err := found.running()
		if err != nil || len(left) == 0 {
			return nil, err
		}
		names := make([]string, 0, len(left))
		for _, h := range left {
			if st, ok := readStat(h.pid); ok {
				names = append(names, fmt.Sprintf("%s (pid %d)", st.comm, st.pid))
			}
		}
		if !awaitAll(left, deadline, sc.rush) {
			return names, nil
		}
	}
}

// Rest asks all that is left of the scope to end, by SIGTERM, and waits for that for at most the
// grace period.
func (sc *Scope) Rest(grace time.Duration) error {
	deadline := time.Now().Add(grace)
	found := sc.trail()
	left, err := found.running()
	if err != nil {
		return err
	}
	for _, h := range left {
		h.signal(unix.SIGCONT)
		h.signal(unix.SIGTERM)
	}
	for len(left) > 0 && awaitAll(left, deadline, sc.rush) {
		if left, err = found.running(); err != nil {
			return err
		}
	}
	return nil
}

// running opens a handle on each process of a scope that lives, in whatever session.
func (t trail) running() ([]handle, error) {
	pids, err := t.candidates()
	if err != nil {
		return nil, err
	}
	return find(pids, func(st stat) bool { return t.cgroup != "" || t.owns(st) }), nil
}
