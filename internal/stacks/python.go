package stacks

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

const (
	maxCandidates = 8 // files in which a Python is looked for
	maxVersion    = 32
)

// errNoPython is a process without a CPython.
var errNoPython = errors.New("the process runs no Python")

// binary is a file that may have a Python in it.
var binaries = regexp.MustCompile(`^(lib)?python[0-9.]*[a-z]*(\.so[0-9.]*)?$`)

// versioned is a path that names a version: of a library, of a program, or of a module.
var versioned = regexp.MustCompile(`python3\.([0-9]{1,2})|cpython-3([0-9]{1,2})-`)

// mapped is where files of a process begin in its memory, the likeliest to be Python first, and which minor version their names tell, or 0.
func mapped(maps []byte, program string) (bases []uint64, minor int) {
	var rest []uint64
	for line := range bytes.Lines(maps) {
		slash := bytes.IndexByte(line, '/')
		if slash < 0 {
			continue
		}
		file := strings.TrimSuffix(string(bytes.TrimSpace(line[slash:])), " (deleted)")
		if minor == 0 {
			if m := versioned.FindStringSubmatch(file); m != nil {
				minor, _ = strconv.Atoi(cmp.Or(m[1], m[2])) // it has one or two digits
			}
		}
		fields := bytes.Fields(line[:slash]) // RANGE PERMISSIONS OFFSET DEVICE INODE
		likely := strings.Contains(file, "python") && binaries.MatchString(path.Base(file))
		if len(fields) < 5 || !likely && file != program || len(bytes.Trim(fields[2], "0")) > 0 {
			continue
		}
		from, _, _ := bytes.Cut(fields[0], []byte("-"))
		base, err := strconv.ParseUint(string(from), 16, 64)
		switch {
		case err != nil:
		case strings.HasPrefix(path.Base(file), "lib"):
			bases = append(bases, base)
		default:
			rest = append(rest, base)
		}
	}
	bases = append(bases, rest...)
	return bases[:min(len(bases), maxCandidates)], minor
}

// interpreter is a Python in a process.
type interpreter struct {
	layout
	runtime uint64
}

// find is the Python of a process. Where it is one that cannot be read, its version is told, if that is known.
func find(pid int, m *memory) (in interpreter, version string, err error) {
	maps, err := large(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return in, "", err
	}
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil && len(maps) == 0 {
		return in, "", errGone
	}
	bases, minor := mapped(maps, strings.TrimSuffix(program, " (deleted)"))
	if len(bases) == 0 {
		return in, "", errNoPython
	}
	failure := errNoPython
	for _, base := range bases {
		in, minor, err = interpreterIn(m, base, minor)
		if err == nil {
			return in, fmt.Sprintf("%d.%d", in.major, in.minor), nil
		}
		if !errors.Is(err, errNoPython) {
			failure = err
		}
	}
	if minor > 0 && !errors.Is(failure, errNoPython) {
		version = "3." + strconv.Itoa(minor)
	}
	return in, version, failure
}

// interpreterIn is the Python that is mapped at base.
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

// pthreadID is where glibc keeps the kernel's number of a thread in what pthread_self returns, by the machine.
var pthreadID = map[string]uint64{"amd64": 720, "arm64": 208}

// read is the stacks of a process's Python threads, the main one first.
func (in interpreter) read(pid int, m *memory) (threads []Thread, cut bool, err error) {
	r := &reader{memory: m, layout: in.layout}
	stacks, err := r.steady(in.runtime)
	if err != nil {
		return nil, false, err
	}
	tids := entries(fmt.Sprintf("/proc/%d/task", pid))
	inner := numbers(pid, tids)
	for i := range stacks {
		stacks[i].native = uint64(in.tid(m, stacks[i], pid, tids, inner, len(stacks) == 1))
	}
	slices.SortStableFunc(stacks, func(a, b stack) int {
		return cmp.Or(order(int(a.native) == pid, int(b.native) == pid), order(a.native > 0, b.native > 0), cmp.Compare(a.native, b.native))
	})
	for _, s := range stacks[:min(len(stacks), maxThreads)] {
		t := Thread{}
		if s.native > 0 {
			t = task(pid, int(s.native))
		}
		t.GIL, t.Moves = s.gil, s.moves
		var less bool
		t.Frames, less = r.frames(s.calls)
		threads, cut = append(threads, t), cut || less
	}
	return threads, cut || len(stacks) > maxThreads, nil
}

// order puts what is so before what is not.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// tid is the kernel's number of a thread on this node; 0 where it is not known. What Python remembers is wrong in a child of a fork.
func (in interpreter) tid(m *memory, s stack, pid int, tids []int, inner map[int]int, alone bool) int {
	known := []int{int(s.native)}
	if at, ok := pthreadID[runtime.GOARCH]; ok && s.thread > 0 {
		if tid, err := m.half(s.thread + at); err == nil {
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
		return pid
	}
	return 0
}

// frames are those of calls, the outermost first, no more than the bound.
func (r *reader) frames(calls []call) (frames []Frame, cut bool) {
	if len(calls) > maxFrames {
		middle := calls[maxFrames/2 : len(calls)-maxFrames/2]
		inner, _ := r.frames(calls[:maxFrames/2])
		frames, _ = r.frames(calls[len(calls)-maxFrames/2:])
		frames = append(frames, Frame{Function: leftOut, Line: len(middle)})
		return append(frames, inner...), true
	}
	for _, c := range slices.Backward(calls) {
		if f, ok := r.frameOf(c); ok {
			frames = append(frames, f)
		}
	}
	return frames, false
}
