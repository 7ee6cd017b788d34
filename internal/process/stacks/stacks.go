// Package stacks takes the Python stacks of ranks on their nodes ([Take]) and makes one tree of those of all ranks ([Merge]), in which a
// rank that does something else than the others comes first.
//
// The stacks are read out of the memory of the processes (proc_pid_mem(5)), as a debugger would, but nothing is stopped, nothing runs in
// the process, and no file of its own is opened: where CPython's state is comes from the symbols that the loader has mapped, and how it lies
// from what CPython 3.13 and 3.14 publish of themselves, or from what 3.9 to 3.12 have fixed. Everything that is read may be torn, for the
// process runs meanwhile, or be a lie, for it is the process's own: each pointer is checked by what it leads to, each walk is made until
// two in a row agree, and all of it has a bound. Of a thread that never stands still the outer frames are told, and that it moves.
//
// Where CPython cannot be read so, py-spy is asked if golaunch finds it in its own PATH, and the ranks are its own user's. What the kernel
// knows of a process (its state, the system call and the place in the kernel where it waits) is told in any case, and so is what would have
// told more.
package stacks

import (
	"unicode/utf8"

	"github.com/golaunch/golaunch/internal/host/safefile"
)

const (
	// maxThreads bounds the threads that are told of a process, the main one first.
	maxThreads = 64
	// maxFrames bounds the frames that are told of a thread: half of them are its outermost, half its innermost.
	maxFrames = 192
	// maxName bounds names of functions and files, in bytes.
	maxName = 256
)

// Process is one to look into.
type Process struct {
	PID, Rank int
	// Role is what it does for the rank; empty for the process that is the rank, and for one whose role its stack shall tell.
	Role string
	// Rights are those of the rank's user: a process that he may not look into himself is refused. Nil leaves it to the kernel what this
	// process may read.
	Rights *safefile.Rights
}

// Sample is what was learnt of a process.
type Sample struct {
	PID  int    `json:"pid"`
	Rank int    `json:"rank"`
	Role string `json:"role,omitempty"`
	// Name is what the kernel calls it.
	Name string `json:"name,omitempty"`
	// Python is its version, such as 3.13; empty where it has none, or none that is known.
	Python string `json:"python,omitempty"`
	// Threads are those that run Python, the main one first; of a process without Python its first one, which has no frames.
	Threads []Thread `json:"threads,omitempty"`
	// Missing says why there is not more, and what would help; empty when nothing is missing.
	Missing string `json:"missing,omitempty"`
	// Cut is set when threads or frames were left out because there are too many of them.
	Cut bool `json:"cut,omitempty"`
}

// Thread is one of a process.
type Thread struct {
	// TID is the kernel's number for it on the node; 0 when that is not known.
	TID  int    `json:"tid,omitempty"`
	Main bool   `json:"main,omitempty"`
	Name string `json:"name,omitempty"`
	// State is the kernel's letter (R runs, S sleeps, D waits for a device, T is stopped), Call the system call that it is in, and Wait
	// where in the kernel it waits. Each is empty where it is not known, or there is none.
	State string `json:"state,omitempty"`
	Call  string `json:"call,omitempty"`
	Wait  string `json:"wait,omitempty"`
	// GIL is set for the thread that holds the interpreter's lock.
	GIL bool `json:"gil,omitempty"`
	// Moves is set when the innermost frames changed faster than they could be read, and are left out.
	Moves  bool    `json:"moves,omitempty"`
	Frames []Frame `json:"frames,omitempty"` // the outermost first
}

// Frame is a call of a Python function. A frame without a file stands for as many as Line says, which were left out.
type Frame struct {
	Function string `json:"function,omitempty"`
	File     string `json:"file,omitempty"`
	// Line is the line that runs; 0 where it is not known.
	Line int `json:"line,omitempty"`
}

// leftOut is the function of a frame that stands for others.
const leftOut = "..."

// clean is a name that a program has chosen, as it may be shown.
func clean(name string) string {
	if len(name) > maxName {
		cut := maxName - len("…")
		for cut > 0 && !utf8.RuneStart(name[cut]) {
			cut--
		}
		name = name[:cut] + "…"
	}
	return visible(name)
}

// clipped leaves frames out of the middle, so that at most that many remain, with one that stands for the others.
func clipped(frames []Frame, most int) []Frame {
	if len(frames) <= most {
		return frames
	}
	outer, inner := most/2, most-most/2
	left := 0
	for _, f := range frames[outer : len(frames)-inner] {
		left += f.stands()
	}
	kept := append(make([]Frame, 0, most+1), frames[:outer]...)
	kept = append(kept, Frame{Function: leftOut, Line: left})
	return append(kept, frames[len(frames)-inner:]...)
}

// stands is how many calls a frame is.
func (f Frame) stands() int {
	if f.File == "" && f.Function == leftOut {
		return f.Line
	}
	return 1
}
