package signals

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// Listen returns the signals that golaunch acts on, and more, until the process ends: a signal
// between the end of a job and the end of the process must not change the exit code.
func Listen(more ...os.Signal) (<-chan os.Signal, error) {
	heard := make(chan os.Signal, 8)
	for _, s := range slices.Concat(usual, more) {
		if !signal.Ignored(s) { // a signal may be ignored, as under nohup
			signal.Notify(heard, s)
		}
	}
	if signal.Ignored(syscall.SIGINT) { // as after & in a script; Go does not report that SIGQUIT is ignored
		if err := fromProcesses(heard, syscall.SIGINT, syscall.SIGQUIT); err != nil {
			return nil, fmt.Errorf("cannot hear SIGINT: %w", err)
		}
	}
	// A write to a closed console returns an error. Without this, a write to descriptor 1 or 2
	// would end the process (os/signal, SIGPIPE).
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return heard, nil
}

// usual are the signals that golaunch acts on.
var usual = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}
