package stacks

import (
	"errors"
	"fmt"
	"slices"
)

const (
	maxInterpreters = 64
	maxStates       = 4096    // threads of an interpreter
	maxDepth        = 1 << 16 // frames of a thread
	// attempts is how often a process is read at most until two readings agree.
	attempts = 6
	// tags are the bits of an object pointer that 3.14 uses for other purposes.
	tags = 7
)

var (
	errNone = errors.New("its Python has not started or has ended")
	errTorn = errors.New("its memory is not as Python leaves it")
)

// call is a frame in memory.
type call struct {
	at, code uint64
	// instruction is an index or an address, depending on the version.
	instruction uint64
}

// stack has the calls of a thread, the innermost first.
type stack struct {
	state          uint64
	thread, native uint64
	tid            int // the kernel's number of the thread on this node, or 0
	gil, moves     bool
	calls          []call
	// depth is the number of calls when the frames were read; calls may have only the outermost of
	// these calls.
	depth int
}

// hidden reports whether a call is left out of the sample, because it is in the middle of a long
// stack.
func (s stack) hidden(i int) bool {
	outer := len(s.calls) - 1 - i // calls outside of it
	return outer >= maxFrames/2 && outer < s.depth-maxFrames/2
}

// steady returns the stacks on which two readings in a row agree, the main thread first. If the two
// readings of a thread do not agree, it returns the calls that both have. Between the two readings
// it reads the functions of the calls. So if both readings have a call, this is the call's
// function.
func (r *reader) steady(runtime uint64) ([]stack, error) {
	var before, common []stack
	var err error
	for n := range attempts {
		r.forget()
		var now []stack
		now, err = walk(r.memory, r.layout, runtime)
		switch {
		case errors.Is(err, errTooMuch) || errors.Is(err, errReplaced) || r.over() != nil:
			return nil, err
		case err != nil:
			before = nil
			continue
		}
		r.arrange(now)
		common = shared(before, now)
		moves := slices.ContainsFunc(common, func(s stack) bool { return s.moves })
		if len(before) == len(now) && !moves || n == attempts-1 {
			break
		}
		r.learn(now)
		before = now
	}
	return common, err
}

// shared returns stacks with the calls, from the outermost on, that did not change.
func shared(before, now []stack) []stack {
	known := make(map[uint64]stack, len(before))
	for _, s := range before {
		known[s.state] = s
	}
	common := slices.Clone(now)
	for i, s := range now {
		earlier := known[s.state].calls
		common[i].depth = len(earlier)
		same := 0
		for same < min(len(earlier), len(s.calls)) {
			a, b := earlier[len(earlier)-1-same], s.calls[len(s.calls)-1-same]
			if a.at != b.at || a.code != b.code {
				break
			}
			same++
		}
		common[i].moves = same < max(len(s.calls), len(earlier))
		common[i].calls = earlier[len(earlier)-same:]
	}
	return common
}

// walk reads the stacks of all threads once.
func walk(m *memory, l layout, runtime uint64) (stacks []stack, err error) {
	at, err := m.word(runtime + l.interpreters)
	if err != nil {
		return nil, err
	}
	if at == 0 {
		return nil, errNone
	}
	for range maxInterpreters {
		if at == 0 {
			break
		}
		if stacks, err = l.interpreterAt(m, stacks, at, runtime); err != nil {
			return nil, err
		}
		if at, err = m.word(at + l.nextInterpreter); err != nil {
			return nil, err
		}
	}
	if len(stacks) == 0 {
		return nil, errNone
	}
	return stacks, nil
}

// interpreterAt adds the stacks of an interpreter's threads.
func (l layout) interpreterAt(m *memory, stacks []stack, at, runtime uint64) ([]stack, error) {
	holder := l.holderOf(m, at, runtime)
	state, err := m.word(at + l.threads)
	for range maxStates {
		if err != nil || state == 0 {
			return stacks, err
		}
		owner, err := m.word(state + l.interpreter)
		if err != nil {
			return nil, err
		}
		if owner != at {
			return nil, fmt.Errorf("the thread at %#x belongs to no interpreter: %w", state, errTorn)
		}
		stacks = append(stacks, l.stackAt(m, state, holder))
		if state, err = m.word(state + l.nextThread); err != nil {
			return nil, err
		}
	}
	return nil, errTooMuch
}

// holderOf returns the thread that holds the interpreter lock, or 0.
func (l layout) holderOf(m *memory, interpreter, runtime uint64) uint64 {
	lock := runtime
	if l.lockOfInterpreter {
		var err error
		if lock, err = m.word(interpreter + l.lock); err != nil {
			return 0
		}
	}
	locked, err := m.half(lock + l.locked)
	if err != nil || locked != 1 {
		return 0
	}
	holder, err := m.word(lock + l.holder)
	if err != nil {
		return 0
	}
	return holder
}

// stackAt reads the stack of a thread up to the first frame that cannot be followed; a second
// reading shows whether that was the end of the stack.
func (l layout) stackAt(m *memory, state, holder uint64) stack {
	s := stack{state: state, gil: state == holder}
	s.thread, _ = m.word(state + l.thread) // 0 means none
	if l.native > 0 {
		s.native, _ = m.word(state + l.native)
	}
	at, err := m.word(state + l.frame)
	if l.cFrames && err == nil {
		at, err = m.word(at + l.cFrame)
	}
	for range maxDepth {
		if err != nil || at == 0 {
			break
		}
		var c call
		var runs bool
		if c, runs, at, err = l.callAt(m, at); err == nil && runs {
			s.calls = append(s.calls, c)
		}
	}
	s.depth = len(s.calls)
	return s
}

// callAt reads a frame, whether it runs code, and the frame that called it.
func (l layout) callAt(m *memory, at uint64) (c call, runs bool, back uint64, err error) {
	c.at = at
	if back, err = m.word(at + l.back); err != nil {
		return c, false, 0, err
	}
	if l.owner > 0 {
		var owner [1]byte
		if err = m.read(at+l.owner, owner[:]); err != nil || owner[0] >= l.shim {
			return c, false, back, err
		}
	}
	if c.code, err = m.word(at + l.code); err != nil {
		return c, false, 0, err
	}
	c.code &^= tags
	if l.instructions > 0 {
		c.instruction, err = m.word(at + l.instruction)
		return c, true, back, err
	}
	index, err := m.half(at + l.instruction)
	c.instruction = uint64(index)
	return c, true, back, err
}
