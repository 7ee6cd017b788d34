package stacks

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/internal/host/lazyregexp"
)

const (
	maxCandidates = 8 // files that may have a Python
	maxVersion    = 32
)

// errNoPython means that a process does not run CPython.
var errNoPython = errors.New("the process runs no Python")

// binaries matches names of files that may have a Python.
var binaries = lazyregexp.New(`^(lib)?python[0-9.]*[a-z]*(\.so[0-9.]*)?$`)

// versioned matches a path with a Python version: of a library, a program or a module.
var versioned = lazyregexp.New(`python3\.([0-9]{1,2})|cpython-3([0-9]{1,2})-`)

// candidate is a mapped file that may have a Python. named says that its name is typical of a
// Python.
type candidate struct {
	base  uint64
	named bool
}

// mapped lists the candidates of a process, the likeliest first, and the minor version in their
// names, or 0.
func mapped(maps []byte, program string) (files []candidate, minor int) {
	var rest []candidate
	for line := range bytes.Lines(maps) {
		slash := bytes.IndexByte(line, '/')
		if slash < 0 {
			continue
		}
		file := strings.TrimSuffix(string(bytes.TrimSpace(line[slash:])), " (deleted)")
		if minor == 0 {
			if m := versioned.Get().FindStringSubmatch(file); m != nil {
				minor, _ = strconv.Atoi(cmp.Or(m[1], m[2])) // it has one or two digits
			}
		}
		fields := bytes.Fields(line[:slash]) // RANGE PERMISSIONS OFFSET DEVICE INODE
		likely := strings.Contains(file, "python") && binaries.Get().MatchString(path.Base(file))
		if len(fields) < 5 || !likely && file != program || len(bytes.Trim(fields[2], "0")) > 0 {
			continue
		}
		from, _, _ := bytes.Cut(fields[0], []byte("-"))
		base, err := strconv.ParseUint(string(from), 16, 64)
		switch {
		case err != nil:
		case strings.HasPrefix(path.Base(file), "lib"):
			files = append(files, candidate{base, likely})
		default:
			rest = append(rest, candidate{base, likely})
		}
	}
	files = append(files, rest...)
	return files[:min(len(files), maxCandidates)], minor
}

// interpreter is a Python in a process.
type interpreter struct {
	layout
	runtime uint64
}

// find finds the Python of a process. If the Python cannot be read, find still returns its version,
// if known.
func find(pid int, m *memory) (in interpreter, version string, err error) {
	maps, err := readLarge(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return in, "", err
	}
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil && len(maps) == 0 {
		return in, "", errGone
	}
	files, minor := mapped(maps, strings.TrimSuffix(program, " (deleted)"))
	failure := errNoPython
	for _, file := range files {
		in, minor, err = interpreterIn(m, file.base, minor)
		switch {
		case err == nil:
			return in, fmt.Sprintf("%d.%d", in.major, in.minor), nil
		case errors.Is(err, errNoSymbols) && !file.named: // such as a statically linked program
		case !errors.Is(err, errNoPython):
			failure = err
		}
	}
	if minor > 0 && !errors.Is(failure, errNoPython) {
		version = "3." + strconv.Itoa(minor)
	}
	return in, version, failure
}

// interpreterIn returns the Python that is mapped at base.
func interpreterIn(m *memory, base uint64, minor int) (interpreter, int, error) {
	img, err := imageAt(m, base)
	if err != nil {
		return interpreter{}, minor, err
	}
	runtime, err := img.symbol("_PyRuntime")
	if err != nil {
		return interpreter{}, minor, fmt.Errorf("%w: %w", errNoPython, err)
	}
	if at, err := img.symbol("Py_Version"); err == nil { // since 3.11
		if version, err := m.word(at); err == nil && version>>24 == 3 {
			minor = int(version >> 16 & 0xff)
		}
	}
	l, err := layoutAt(m, runtime, minor)
	return interpreter{l, runtime}, minor, err
}

// pthreadID is, by architecture, the offset of the kernel's thread number in the structure that
// glibc's pthread_self returns.
var pthreadID = map[string]uint64{"amd64": 720, "arm64": 208}

// read returns the Python threads of a process, the main one first.
func (in interpreter) read(pid int, m *memory) (threads []Thread, cut bool, err error) {
	r := &reader{memory: m, layout: in.layout, pid: pid}
	stacks, err := r.steady(in.runtime)
	if err != nil {
		return nil, false, err
	}
	for _, s := range stacks[:min(len(stacks), maxThreads)] {
		t := Thread{}
		if s.tid > 0 {
			t = task(pid, s.tid)
		}
		t.GIL, t.Moves = s.gil, s.moves
		var less bool
		t.Frames, less = r.frames(s)
		threads, cut = append(threads, t), cut || less
	}
	return threads, cut || len(stacks) > maxThreads, nil
}

// arrange sets the kernel's thread numbers and puts the main thread first.
func (r *reader) arrange(stacks []stack) {
	tids := entries(fmt.Sprintf("/proc/%d/task", r.pid))
	inner := numbers(r.pid, tids)
	for i := range stacks {
		stacks[i].tid = r.tid(stacks[i], tids, inner, len(stacks) == 1)
	}
	slices.SortStableFunc(stacks, func(a, b stack) int {
		return cmp.Or(order(a.tid == r.pid, b.tid == r.pid), order(a.tid > 0, b.tid > 0), cmp.Compare(a.tid, b.tid))
	})
}

// order sorts true before false.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// tid returns the kernel's number of a thread on this node, or 0. The number that Python has stored
// is wrong in a forked child.
func (r *reader) tid(s stack, tids []int, inner map[int]int, alone bool) int {
	known := []int{int(s.native)}
	if at, ok := pthreadID[runtime.GOARCH]; ok && s.thread > 0 {
		if tid, err := r.half(s.thread + at); err == nil {
			known = append(known, int(tid))
		}
	}
	for _, tid := range known {
		if inner != nil {
			tid = inner[tid]
		}
		if tid > 0 && slices.Contains(tids, tid) {
			return tid
		}
	}
	if alone {
		return r.pid
	}
	return 0
}

// frames returns the known frames of a stack, the outermost first, and one frame for all unknown
// frames.
func (r *reader) frames(s stack) (frames []Frame, cut bool) {
	left := 0
	skip := func() {
		if left > 0 {
			frames = append(frames, Frame{Function: leftOut, Line: left})
			left, cut = 0, true
		}
	}
	for i, c := range slices.Backward(s.calls) {
		f, ok := r.known[position{c.code, c.instruction}]
		if !ok || s.hidden(i) {
			left++
			continue
		}
		if f != (Frame{}) {
			skip()
			frames = append(frames, f)
		}
	}
	skip()
	return frames, cut
}
