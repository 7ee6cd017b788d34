package tcpstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
)

// These are the requests of a world's clients, and their replies.

// act is a request of a client. asked is when it was sent, and known is when its result was known.
type act struct {
	client       *player
	op           byte
	keys         []string
	value, want  string
	delta        int64
	asked, known int
	reply        []byte
	void         bool // a wait that was given up
	free         bool // its client has gone: the request may have been done or not
}

func (a *act) String() string {
	return fmt.Sprintf("client %d: op %d %v %q %q %d = %q [%d, %d]", a.client.id, a.op, a.keys, a.value, a.want, a.delta, a.reply, a.asked, a.known)
}

func (w *world) act(c *player) *act {
	a := &act{client: c, asked: w.now, known: -1}
	some := func() []string {
		keys := []string{"a", "b", "a", "b", "n"}
		return slices.Compact(keys[w.rng.IntN(3):][:1+w.rng.IntN(2)])
	}
	w.values++
	a.value = fmt.Sprint(w.values)
	a.keys = []string{[]string{"a", "b"}[w.rng.IntN(2)]}
	switch w.ops[w.rng.IntN(len(w.ops))] {
	case protocol.OpSet:
		a.op = protocol.OpSet
	case protocol.OpGet:
		a.op, a.keys = protocol.OpGet, some()[:1]
	case protocol.OpMultiGet:
		a.op, a.keys = protocol.OpMultiGet, some()
	case protocol.OpAdd:
		a.op, a.keys, a.delta = protocol.OpAdd, []string{"n"}, 1+int64(w.rng.IntN(3))
	case protocol.OpCompareSet:
		a.op = protocol.OpCompareSet
		if w.rng.IntN(2) == 0 {
			a.want = fmt.Sprint(w.rng.IntN(w.values + 1))
		}
	case protocol.OpAppend:
		a.op = protocol.OpAppend
	case protocol.OpDeleteKey:
		a.op = protocol.OpDeleteKey
	case protocol.OpCheck:
		a.op, a.keys = protocol.OpCheck, some()
	case protocol.OpWait:
		if a.op, a.keys = protocol.OpWait, some(); w.rng.IntN(2) == 0 {
			a.keys = []string{"a", "b"}
		}
	case protocol.OpQueuePush:
		a.op, a.keys = protocol.OpQueuePush, []string{"q"}
	case protocol.OpQueuePop:
		a.op, a.keys = protocol.OpQueuePop, []string{"q"}
	case protocol.OpQueueLen:
		a.op, a.keys = protocol.OpQueueLen, []string{"q"}
	case protocol.OpNumKeys:
		a.op = protocol.OpNumKeys
	case protocol.OpMultiSet:
		a.op, a.keys = protocol.OpMultiSet, []string{"a", "b"}
	default:
		a.op = protocol.OpPing
	}
	return a
}

func (a *act) request() []byte {
	r := ask(a.op)
	switch a.op {
	case protocol.OpSet, protocol.OpAppend, protocol.OpQueuePush:
		r = r.key(a.keys[0]).value([]byte(a.value))
	case protocol.OpGet, protocol.OpDeleteKey, protocol.OpQueuePop, protocol.OpQueueLen:
		r = r.key(a.keys[0])
	case protocol.OpMultiGet, protocol.OpCheck, protocol.OpWait:
		r = r.keys(a.keys)
	case protocol.OpAdd:
		r = r.key(a.keys[0]).int(a.delta)
	case protocol.OpCompareSet:
		r = r.key(a.keys[0]).value([]byte(a.want)).value([]byte(a.value))
	case protocol.OpMultiSet:
		r = r.int(int64(len(a.keys)))
		for _, key := range a.keys {
			r = r.key(key).value([]byte(a.value))
		}
	case protocol.OpPing:
		return []byte{protocol.OpPing, 1, 2, 3, 4}
	}
	return r.bytes
}

func (a *act) replies() bool {
	return a.op != protocol.OpSet && a.op != protocol.OpAppend && a.op != protocol.OpQueuePush && a.op != protocol.OpMultiSet
}

// handleMessage takes the replies that a client has received.
func (w *world) handleMessage(c *player) bool {
	var buf [4096]byte
	n, _ := unix.Read(c.fd, buf[:]) // -1 for nothing
	c.got = append(c.got, buf[:max(n, 0)]...)
	for len(c.got) > 0 {
		i := slices.IndexFunc(c.acts, (*act).replies)
		if i < 0 {
			w.t.Errorf("client %d got % x, which it did not ask for", c.id, c.got[:min(len(c.got), 32)])
			c.got = nil
			return false
		}
		a := c.acts[i]
		if a.op == protocol.OpWait && c.got[0] == protocol.WaitCanceled {
			a.void = true
			a.known = w.now
			c.acts = slices.Delete(c.acts, i, i+1)
			continue
		}
		size := a.length(c.got)
		if size < 0 {
			break
		}
		a.reply, c.got = bytes.Clone(c.got[:size]), c.got[size:]
		for _, done := range c.acts[:i+1] {
			done.known = w.now
		}
		c.acts = c.acts[i+1:]
		if a.op == protocol.OpWait && len(c.acts) == 0 {
			c.waits = false
		}
		w.log("%d: %v", w.now, a)
	}
	return n > 0
}

// length returns the length of a reply that begins with b, or -1 if b is too short to tell.
func (a *act) length(b []byte) int {
	fields, frames := 0, 0
	switch a.op {
	case protocol.OpAdd, protocol.OpDeleteKey, protocol.OpNumKeys, protocol.OpQueueLen:
		fields = 8
	case protocol.OpCheck, protocol.OpWait, protocol.OpCancelWait:
		fields = 1
	case protocol.OpPing:
		fields = 4
	case protocol.OpGet, protocol.OpCompareSet:
		frames = 1
	case protocol.OpMultiGet:
		frames = len(a.keys)
	case protocol.OpQueuePop:
		fields = 8
		if len(b) >= 8 && binary.LittleEndian.Uint64(b) > 0 {
			frames = 1
		}
	}
	for n := fields; ; frames-- {
		if len(b) < n {
			return -1
		}
		if frames == 0 {
			return n
		}
		if len(b) < n+8 {
			return -1
		}
		n += 8 + int(binary.LittleEndian.Uint64(b[n:]))
	}
}
