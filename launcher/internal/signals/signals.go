// Package signals decides what each signal that golaunch receives means: to stop, or to pass the
// signal on to the ranks.
package signals

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ForRanks reports whether a signal is to be passed on to the ranks. All other signals are stop
// signals.
func ForRanks(s os.Signal) bool { return s == syscall.SIGUSR1 || s == syscall.SIGUSR2 }

// FromKeyboard reports whether a key of a terminal sends the signal.
func FromKeyboard(s os.Signal) bool { return s == syscall.SIGINT || s == syscall.SIGQUIT }

// stop wraps SIGUSR1 or SIGUSR2 where it is a stop signal, so that [ForRanks] is false for it.
type stop struct{ by syscall.Signal }

func (s stop) String() string { return s.by.String() }

// Signal makes a stop an [os.Signal].
func (s stop) Signal() {}

// Of returns the number of a signal; 0 if s is no signal of the operating system.
func Of(s os.Signal) syscall.Signal {
	if stop, ok := s.(stop); ok {
		return stop.by
	}
	sig, _ := s.(syscall.Signal)
	return sig
}

// Name returns the signal's name, such as SIGTERM.
func Name(s os.Signal) string {
	if name := unix.SignalName(Of(s)); name != "" {
		return name
	}
	return s.String()
}
