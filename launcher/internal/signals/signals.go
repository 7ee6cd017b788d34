// Package signals decides what each signal that golaunch receives means: a stop, or a signal for
// the ranks.
package signals

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ForRanks reports whether a signal is for the ranks, and no stop.
func ForRanks(s os.Signal) bool { return s == syscall.SIGUSR1 || s == syscall.SIGUSR2 }

// FromKeyboard reports whether a key of a terminal sends the signal.
func FromKeyboard(s os.Signal) bool { return s == syscall.SIGINT || s == syscall.SIGQUIT }

// stop is a signal that stops the job, although [ForRanks] is true for it.
type stop struct{ by syscall.Signal }

func (s stop) String() string { return s.by.String() }

// Signal makes it an [os.Signal].
func (s stop) Signal() {}

// Of returns the signal of the system; 0 if s is not one.
func Of(s os.Signal) syscall.Signal {
	if stop, ok := s.(stop); ok {
		return stop.by
	}
	sig, _ := s.(syscall.Signal)
	return sig
}

// Name is the signal's name, such as SIGTERM.
func Name(s os.Signal) string {
	if name := unix.SignalName(Of(s)); name != "" {
		return name
	}
	return s.String()
}
