// Package verdict says what a failure means: restart, replace the node, stop, or wait, with the line that decided.
//
// [Judge] reads what one rank left behind: how it ended, its last lines, its traceback, and what the kernel and the checks of its
// node said. It is a table of rules over lines and a few decisions about which line counts; the same evidence always gives the
// same verdict. [Signature] names a failure so that it is known again on another rank or in a later attempt, and [Recurrence]
// counts that: what comes again and again without progress is a bug in the program, and no restart mends it.
//
// Nothing here reads a file, a clock or the network, and no input, however odd, costs more than time linear in its first 256 KiB.
package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
)

// Action is what a verdict advises.
type Action string

const (
	// Restart starts the ranks again on the same nodes.
	Restart Action = "restart"
	// Replace starts them again without the node that failed.
	Replace Action = "replace"
	// Stop ends the job: the same program would fail in the same way.
	Stop Action = "stop"
	// Wait starts them again once something outside of the job, such as a full disk, is mended.
	Wait Action = "wait"
)

// Unknown is the cause when nothing is recognised.
const Unknown = "unknown"

// Quit is the cause when a person has ended the program in its debugger: nothing may start it again.
const Quit = "debugger-quit"

// NotKnown is an exit code that nobody has told.
const NotKnown = -1

// Evidence is what is known of one failed rank.
type Evidence struct {
	Exit report.Exit
	// Tail has its last lines, Traceback what it left in its error file. Of each the last 256 KiB are read.
	Tail, Traceback string
	// Kernel is what the kernel of its node logged at that time, Unhealthy what a check of the node's GPUs and links has found
	// broken; both empty when nothing is known.
	Kernel, Unhealthy string
	Node              string
	Rank, Attempt     int
	// Lived is how long the attempt ran, 0 when that is not known. Step is how far the program says it had come, 0 when it does not.
	Lived time.Duration
	Step  int64
}

// Verdict is what a failure means.
type Verdict struct {
	Action Action
	// Cause is a stable code, such as cuda-oom, and Title says it in words.
	Cause, Title string
	// Quote is the line that decided, cut to 300 bytes, and empty when the exit alone did. From says where it stands, and Line is
	// its number there, from 1; From is empty, and Line 0, where it stands nowhere.
	Quote string
	From  Source
	Line  int
	// Victim says that this is the echo of another rank's failure.
	Victim bool
	// Remedy is what a person can do.
	Remedy string
}

// Source names a part of the evidence.
type Source string

// The parts of the evidence, as [Verdict.From] names them.
const (
	FromExit      Source = "exit"
	FromTail      Source = "tail"
	FromTraceback Source = "traceback"
	FromKernel    Source = "kernel"
	FromHealth    Source = "health"
)

// maxText bounds what is read of each text, maxQuote a line that is quoted, in bytes.
const (
	maxText  = 256 << 10
	maxQuote = 300
)

// String is the verdict in one line: "cuda-oom: torch.OutOfMemoryError: CUDA out of memory. (stop:
// use a smaller batch)". It is empty for the zero Verdict.
func (v Verdict) String() string {
	if v.Cause == "" {
		return ""
	}
	return fmt.Sprintf("%s: %s (%s: %s)", v.Cause, cmp.Or(v.Quote, v.Title), v.Action, v.Remedy)
}

// Judge says what a failure means. Own rules, in their order, come before the built-in ones. It is the zero Verdict for a process
// that exited 0.
//
// What the kernel and the checks say of the node decides before what the rank wrote: hardware that fails shows itself in many odd
// words. Of what it wrote, the exception that ended it decides before the lines above that exception, and those lines before an
// exception that is only the echo of another rank's failure.
func Judge(e Evidence, own ...Rule) Verdict {
	if e.Exit == (report.Exit{}) {
		return Verdict{}
	}
	texts := []text{read(FromTraceback, e.Traceback), read(FromTail, e.Tail)}
	kernel := read(FromKernel, e.Kernel)
	steps := []func() (Verdict, bool){
		func() (Verdict, bool) { return first(own, []text{texts[0], texts[1], kernel}, every) },
		func() (Verdict, bool) { return fromExit(e.Exit, certain) },
		func() (Verdict, bool) { return first(builtin(), append([]text{kernel}, texts...), Rule.hardware) },
		func() (Verdict, bool) { return unhealthy(e.Unhealthy) },
		func() (Verdict, bool) { return first(builtin(), []text{kernel}, Rule.fatal) },
		func() (Verdict, bool) { return fromText(texts, e.Exit) },
		func() (Verdict, bool) { return fromExit(e.Exit, likely) },
	}
	for _, step := range steps {
		if v, ok := step(); ok {
			return v.placed(e)
		}
	}
	return unknown
}

// placed corrects the verdict by the place in the program: what is full is shared memory, and no
// disk, where Python makes semaphores and memory for several processes.
func (v Verdict) placed(e Evidence) Verdict {
	file, _, _ := strings.Cut(place(e), ":")
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

// fromText finds the line of the program that decides. A process that a signal ended did not end by an exception, but for
// SIGABRT, which the C++ runtime raises for one.
func fromText(texts []text, x report.Exit) (Verdict, bool) {
	raised := x.Signal == 0 || x.Signal == sigabrt
	var echo Verdict
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

func unhealthy(finding string) (Verdict, bool) {
	finding = strings.TrimSpace(finding)
	return Verdict{
		Action: Replace, Cause: "node-unhealthy", Title: "a check of the node has found a fault", Quote: quote(finding),
		From: FromHealth, Line: 1, Remedy: "look at the node: golaunch doctor",
	}, finding != ""
}

// What these mean no line and no exit tells: the coordinator knows it of the whole job.
var (
	// NodeLost is the verdict on the loss of a node.
	NodeLost = Verdict{
		Action: Replace, Cause: "node-lost", Title: "a node, or its agent, is gone",
		Remedy: "look at that machine and at the log of its agent",
	}
	// Hang is the verdict on ranks that stand still.
	Hang = Verdict{
		Action: Restart, Cause: "hang", Title: "no rank moved for --hang-timeout",
		Remedy: "read where each rank stood: stacks.txt in the bundle",
	}
	// Unreachable is the verdict on a node that does not reach the master, or on a master that is
	// not reached.
	Unreachable = Verdict{
		Action: Replace, Cause: "unreachable", Title: "a node does not reach MASTER_ADDR:MASTER_PORT",
		Remedy: "check the route and the firewall between them, or choose other addresses with --address or --interface, or ports that the " +
			"firewall lets through with --port-range",
	}
	early = Verdict{
		Action: Restart, Cause: "early-exit", Title: "a rank exited 0 while its peers still needed it",
		Remedy: "let all ranks leave together: a barrier, and then destroy_process_group(), at the end of the program",
	}
)

// EarlyExit is the verdict on an attempt that has nothing but echoes, where a rank, and so many
// more, had exited 0 before the first of them, by the time given.
func EarlyExit(rank int, node string, more int, before time.Duration) Verdict {
	v := early
	before = before.Round(100 * time.Millisecond)
	switch more {
	case 0:
		v.Quote = fmt.Sprintf("rank %d on %s had exited with code 0 %v before", rank, node, before)
	case 1:
		v.Quote = fmt.Sprintf("rank %d on %s and 1 more rank had exited with code 0, the first %v before", rank, node, before)
	default:
		v.Quote = fmt.Sprintf("rank %d on %s and %d more ranks had exited with code 0, the first %v before", rank, node, more, before)
	}
	return v
}

var unknown = Verdict{
	Action: Restart, Cause: Unknown, Title: "nothing of it is recognised", From: FromExit,
	Remedy: "read the rank's log; a line of its own in --failure-rules makes it known",
}
