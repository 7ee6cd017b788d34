package report

import (
	"cmp"
	"fmt"
)

// Action is what a verdict advises.
type Action string

const (
	// ActionRestart starts the ranks again on the same nodes.
	ActionRestart Action = "restart"
	// ActionReplace starts the ranks again without the node that failed.
	ActionReplace Action = "replace"
	// ActionStop ends the job: the same program would fail in the same way.
	ActionStop Action = "stop"
	// ActionWait starts the ranks again once something outside the job, such as a full disk, is
	// repaired.
	ActionWait Action = "wait"
)

// Source names a part of the evidence.
type Source string

// The values of [Verdict].From: the rank's exit, its last lines, its traceback, and the kernel's
// log.
const (
	FromExit      Source = "exit"
	FromTail      Source = "tail"
	FromTraceback Source = "traceback"
	FromKernel    Source = "kernel"
)

// Verdict is what a failure means. It is zero if the job ended before anything could fail.
type Verdict struct {
	Action Action `json:"action"`
	// Cause is a short name, such as cuda-oom, from docs/failures.md or from the job's failure
	// rules. Title says it in words.
	Cause string `json:"cause"`
	Title string `json:"title"`
	// Quote is the line that decided the verdict, cut to 300 bytes; empty if the exit alone
	// decided. From is the part of the evidence that has the line, and Line is the line's number
	// there, from 1. Both are zero if no part has the line.
	Quote string `json:"quote,omitempty"`
	From  Source `json:"from,omitempty"`
	Line  int    `json:"line,omitempty"`
	// Victim says that this failure is an echo of another rank's failure.
	Victim bool `json:"victim"`
	// Remedy says what a person can do about the cause.
	Remedy string `json:"remedy"`
}

// String returns the verdict in one line: "cuda-oom: torch.OutOfMemoryError: CUDA out of memory.
// (stop: use a smaller batch)". It is empty for the zero Verdict.
func (v Verdict) String() string {
	if v.Cause == "" {
		return ""
	}
	return fmt.Sprintf("%s: %s (%s: %s)", v.Cause, cmp.Or(v.Quote, v.Title), v.Action, v.Remedy)
}
