// Package stacks takes the Python stacks of ranks on their nodes ([Take]) and merges the stacks of
// all ranks into a tree ([Merge]) that shows unusual ranks first.
//
// It reads the stacks from the memory of the processes (proc_pid_mem(5)), as a debugger would, but
// it does not stop the process, runs nothing in it, and opens none of its files. It finds CPython's
// state through the symbols that the loader mapped. It finds CPython's structures through the
// offsets that CPython 3.13 and 3.14 publish, or through the fixed layouts of 3.9 to 3.12. The
// process runs meanwhile, and its memory may be inconsistent. So the package checks the object at
// each pointer, repeats each walk until two walks in a row agree, and bounds everything. For a
// thread that never stands still, it reports the outer frames, and that the thread moves.
//
// If CPython cannot be read this way, it asks py-spy, if that is in golaunch's own PATH and the
// ranks belong to golaunch's user. It always reports the kernel's facts about a process (its state,
// its system call and where in the kernel it waits), and what a person can do to see more.
package stacks

import (
	"unicode/utf8"

	"github.com/golaunch/golaunch/internal/host/safefile"
)

const (
	// maxThreads bounds the reported threads of a process, the main one first.
	maxThreads = 64
	// maxFrames bounds the reported frames of a thread: half of them the outermost, half the
	// innermost.
	maxFrames = 192
	// maxName bounds names of functions and files, in bytes.
	maxName = 256
)

// Process is a process to examine.
type Process struct {
	PID, Rank int
	// Role is the task of the process for the rank; empty for the rank itself, and for a process
	// whose stack shows its role.
	Role string
	// Rights are the rights of the rank's user. A process that this user may not trace is refused.
	// If nil, the kernel decides what this process may read.
	Rights *safefile.Rights
}

// Sample has the facts found out about a process.
type Sample struct {
	PID  int    `json:"pid"`
	Rank int    `json:"rank"`
	Role string `json:"role,omitempty"`
	// Name is the kernel's name of the process.
	Name string `json:"name,omitempty"`
	// Python is the version of its Python, such as 3.13; empty if none or unknown.
	Python string `json:"python,omitempty"`
	// Threads are the threads that run Python, the main thread first. For a process without Python,
	// it has the first thread, without frames.
	Threads []Thread `json:"threads,omitempty"`
	// Missing says why the sample is incomplete and what would help; otherwise empty.
	Missing string `json:"missing,omitempty"`
	// Cut says that threads or frames were left out because there are too many.
	Cut bool `json:"cut,omitempty"`
}

// Thread is a thread of a process.
type Thread struct {
	// TID is the kernel's thread number on the node; 0 if unknown.
	TID  int    `json:"tid,omitempty"`
	Main bool   `json:"main,omitempty"`
	Name string `json:"name,omitempty"`
	// State is the kernel's letter (R runs, S sleeps, D waits for a device, T is stopped). Call is
	// the current system call. Wait is the place in the kernel where the thread waits. Each is
	// empty if unknown or none.
	State string `json:"state,omitempty"`
	Call  string `json:"call,omitempty"`
	Wait  string `json:"wait,omitempty"`
	// GIL says that the thread holds the interpreter lock.
	GIL bool `json:"gil,omitempty"`
	// Moves says that the innermost frames changed faster than they could be read, and are left
	// out.
	Moves  bool    `json:"moves,omitempty"`
	Frames []Frame `json:"frames,omitempty"` // the outermost first
}

// Frame is a call of a Python function. A frame without a file stands for frames that were left
// out; Line is their number.
type Frame struct {
	Function string `json:"function,omitempty"`
	File     string `json:"file,omitempty"`
	// Line is the current line; 0 if unknown.
	Line int `json:"line,omitempty"`
}

// leftOut is the function name of a frame that stands for others.
const leftOut = "..."

// clean makes a name that a program chose safe to show.
func clean(name string) string {
	name = visible(name) // a replaced byte becomes three
	if len(name) > maxName {
		cut := maxName - len("…")
		for cut > 0 && !utf8.RuneStart(name[cut]) {
			cut--
		}
		name = name[:cut] + "…"
	}
	return name
}

// clipped omits frames in the middle, and puts one frame there that stands for them.
func clipped(frames []Frame, most int) []Frame {
	if len(frames) <= most {
		return frames
	}
	outer, inner := most/2, most-most/2
	left := 0
	for _, f := range frames[outer : len(frames)-inner] {
		left += f.count()
	}
	kept := append(make([]Frame, 0, most+1), frames[:outer]...)
	kept = append(kept, Frame{Function: leftOut, Line: left})
	return append(kept, frames[len(frames)-inner:]...)
}

// count returns the number of calls that a frame stands for.
func (f Frame) count() int {
	if f.File == "" && f.Function == leftOut {
		return f.Line
	}
	return 1
}
