// Package verdict says what a failure means: restart, replace the node, stop, or wait. It quotes
// the line that decided.
//
// [Judge] reads the evidence of one rank: its exit, its last lines, its traceback, and the kernel
// messages of its node. It has a table of rules for lines, and a few rules about which line counts.
// The same evidence always gives the same verdict. [Signature] names a failure, so that it is
// recognized on another rank or in a later attempt. [Recurrence] counts repetitions: a failure that
// repeats without progress is a bug in the program, which no restart can correct.
//
// The package reads no file, clock or network. For any input, the time is at most linear in the
// input's size, and at most 256 KiB of each text are read.
package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
)

// Unknown is the cause of a failure that no rule recognizes.
const Unknown = "unknown"

// Quit is the cause of a failure if a person has ended the program in its debugger. The program
// must then not start again.
const Quit = "debugger-quit"

// NotKnown stands for an exit code that is not known.
const NotKnown = -1

// maxText bounds the part of each text that is read, and maxQuote a quoted line, in bytes.
const (
	maxText  = 256 << 10
	maxQuote = 300
)

// Judge says what the failure of a rank means. It reads Exit, Tail, Traceback and Kernel. The last
// 256 KiB of each text are read. The caller's own rules, in their order, come before the built-in
// ones. A process that exited 0 gets the zero Verdict. An exit code of [NotKnown] is a failure.
//
// Kernel messages about the node take precedence over the rank's output, because failing hardware
// causes many odd messages. In the rank's own output, the exception that ended the rank takes
// precedence over the lines above it. These lines take precedence over an exception that is only
// the echo of another rank's failure.
func Judge(f report.Failure, own ...Rule) report.Verdict {
	if f.Exit == (report.Exit{}) {
		return report.Verdict{}
	}
	texts := []text{read(report.FromTraceback, f.Traceback), read(report.FromTail, f.Tail)}
	kernel := read(report.FromKernel, f.Kernel)
	steps := []func() (report.Verdict, bool){
		func() (report.Verdict, bool) { return first(own, []text{texts[0], texts[1], kernel}, every) },
		func() (report.Verdict, bool) {
			return first(builtin(), texts[1:], func(r Rule) bool { return r.asked })
		},
		func() (report.Verdict, bool) { return fromExit(f.Exit, certain) },
		func() (report.Verdict, bool) {
			return first(builtin(), append([]text{kernel}, texts...), Rule.hardware)
		},
		func() (report.Verdict, bool) { return first(builtin(), []text{kernel}, Rule.fatal) },
		func() (report.Verdict, bool) { return fromEnv(texts[1], f) },
		func() (report.Verdict, bool) { return fromText(texts, f.Exit) },
		func() (report.Verdict, bool) { return fromExit(f.Exit, likely) },
	}
	for _, step := range steps {
		if v, ok := step(); ok {
			return placed(v, f)
		}
	}
	return unknown
}

// placed corrects a verdict if the place of the failure in the program shows a better one. If
// Python was making semaphores or memory for several processes, shared memory is full, not a disk.
func placed(v report.Verdict, f report.Failure) report.Verdict {
	file, _, _ := strings.Cut(place(f), ":")
	if v.Cause != "disk-full" || !slices.Contains(inSharedMemory, file) {
		return v
	}
	for _, r := range builtin() {
		if r.Cause == sharedMemoryFull {
			v.Action, v.Cause, v.Title, v.Remedy = r.Action, r.Cause, r.Title, r.Remedy
		}
	}
	return v
}

// inSharedMemory are the files of Python's multiprocessing that use /dev/shm.
var inSharedMemory = []string{"synchronize.py", "shared_memory.py", "heap.py"}

// fromText finds the line of the program's output that decides. A process that a signal ended did
// not end by an exception, unless the signal is SIGABRT, which the C++ runtime raises for an
// exception.
func fromText(texts []text, x report.Exit) (report.Verdict, bool) {
	raised := x.Signal == 0 || x.Signal == sigabrt
	var echo report.Verdict
	for _, t := range texts {
		chain, handled := t.chain()
		if !raised || len(chain) == 0 {
			continue
		}
		v := raise(chain, handled)
		if !v.Victim {
			return v, true
		}
		echo = cmp.Or(echo, v)
	}
	if v, ok := first(builtin(), texts, Rule.fatal); ok {
		return v, true
	}
	if echo.Victim {
		return echo, true
	}
	if !raised {
		return first(builtin(), texts, func(r Rule) bool { return r.fatal() || r.Victim })
	}
	return first(builtin(), texts, every)
}

// These verdicts follow from no line and no exit: the coordinator knows them from the whole job.
var (
	// NodeLost is the verdict on the loss of a node.
	NodeLost = report.Verdict{
		Action: report.ActionReplace, Cause: "node-lost", Title: "a node, or its agent, is gone",
		Remedy: "look at that machine and at the log of its agent",
	}
	// Hang is the verdict on ranks that stand still.
	Hang = report.Verdict{
		Action: report.ActionRestart, Cause: "hang", Title: "no rank moved for --hang-timeout, or one overran a limit of its own",
		Remedy: "read where each rank stood: stacks.txt in the bundle",
	}
	// Unreachable is the verdict on a node that does not reach the master, or on a master that no
	// node reaches.
	Unreachable = report.Verdict{
		Action: report.ActionReplace, Cause: "unreachable", Title: "a node does not reach MASTER_ADDR:MASTER_PORT",
		Remedy: "check the route and the firewall between them, or choose other addresses with --address or --interface, or ports that the " +
			"firewall lets through with --port-range",
	}
	early = report.Verdict{
		Action: report.ActionRestart, Cause: "early-exit", Title: "a rank exited 0 while its peers still needed it",
		Remedy: "let all ranks leave together: a barrier, and then destroy_process_group(), at the end of the program",
	}
)

// Early is the first rank of an attempt that exited 0 while others ran. More counts the other ranks
// that did so. A nil Early says that no rank did.
type Early struct {
	Rank, More int
	Node       string
	At         time.Time
}

// And adds a rank. Nodes may report in any order.
func (e *Early) And(rank int, node string, at time.Time) *Early {
	switch {
	case e == nil:
		return &Early{rank, 0, node, at}
	case at.Before(e.At):
		return &Early{rank, e.More + 1, node, at}
	}
	e.More++
	return e
}

// Explains returns the verdict on a failure that is only an echo, if a rank had exited 0 before.
// The others then lost a peer that had succeeded, but too soon.
func (e *Early) Explains(f report.Failure) (report.Verdict, bool) {
	if !f.Verdict.Victim || e == nil || !e.At.Before(f.At) {
		return report.Verdict{}, false
	}
	v := early
	before := f.At.Sub(e.At).Round(100 * time.Millisecond)
	switch e.More {
	case 0:
		v.Quote = fmt.Sprintf("rank %d on %s had exited with code 0 %v before", e.Rank, e.Node, before)
	case 1:
		v.Quote = fmt.Sprintf("rank %d on %s and 1 more rank had exited with code 0, the first %v before", e.Rank, e.Node, before)
	default:
		v.Quote = fmt.Sprintf("rank %d on %s and %d more ranks had exited with code 0, the first %v before", e.Rank, e.Node, e.More, before)
	}
	return v, true
}

var unknown = report.Verdict{
	Action: report.ActionRestart, Cause: Unknown, Title: "no rule recognises it", From: report.FromExit,
	Remedy: "read the rank's log; add a rule for it to --failure-rules",
}
