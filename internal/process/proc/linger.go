package proc

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/procfs"
)

// Linger waits until nothing of the scope runs, for at most the given time, and names what still
// runs. The processes that were started must have exited: Linger waits for the processes that they
// have left behind. It returns at once if the scope is stopped or killed.
func (sc *Scope) Linger(limit time.Duration) ([]string, error) {
	found := sc.trail()
	deadline := time.Now().Add(limit)
	for {
		left, err := found.Running()
		if err != nil || len(left) == 0 {
			return nil, err
		}
		names := make([]string, 0, len(left))
		for _, h := range left {
			if st, ok := procfs.ReadStat(h.PID); ok {
				names = append(names, fmt.Sprintf("%s (pid %d)", st.Comm, st.PID))
			}
		}
		if !procfs.AwaitAll(left, deadline, sc.rush) {
			return names, nil
		}
	}
}

// Rest sends SIGTERM to all remaining processes of the scope, and waits for their end, for at most
// the grace period.
func (sc *Scope) Rest(grace time.Duration) error {
	deadline := time.Now().Add(grace)
	found := sc.trail()
	left, err := found.Running()
	if err != nil {
		return err
	}
	for _, h := range left {
		h.Signal(unix.SIGCONT)
		h.Signal(unix.SIGTERM)
	}
	for len(left) > 0 && procfs.AwaitAll(left, deadline, sc.rush) {
		if left, err = found.Running(); err != nil {
			return err
		}
	}
	return nil
}
