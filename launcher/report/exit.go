package report

import "fmt"

// Exit is how one process ended.
type Exit struct {
	// Code is the exit code; for a process that died of a signal it is 128+Signal.
	Code int `json:"code"`
	// Signal is the signal that ended the process, or 0.
	Signal int `json:"signal,omitempty"`
	// OOM says that the kernel killed the process for lack of memory.
	OOM bool `json:"oom"`
	// Spawn says why the process could not be started at all: Code is then 126 (not executable),
	// 127 (not found) or 125.
	Spawn string `json:"spawn,omitempty"`
}

// Started reports whether the process was started.
func (e Exit) Started() bool { return e.Spawn == "" }

// OK reports whether the process was started and exited with code 0.
func (e Exit) OK() bool { return e.Code == 0 && e.Started() }

// String describes the end in words that follow the name of the process: "exited with code 7",
// "died of SIGKILL (out of memory)".
func (e Exit) String() string {
	text := fmt.Sprintf("exited with code %d", e.Code)
	switch {
	case !e.Started():
		return "could not be started: " + e.Spawn
	case e.Signal != 0:
		text = "died of " + signalName(e.Signal)
	}
	if e.OOM {
		text += " (out of memory)"
	}
	return text
}

// signals has the names of Linux's signals by their numbers, which are the same on all platforms
// with GPUs (signal(7)).
var signals = [...]string{
	1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
	10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 24: "SIGXCPU", 25: "SIGXFSZ",
	31: "SIGSYS",
}

func signalName(n int) string {
	if n > 0 && n < len(signals) && signals[n] != "" {
		return signals[n]
	}
	return fmt.Sprintf("signal %d", n)
}
