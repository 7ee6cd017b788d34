package tcpstore

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
)

// The model is the store as its users see it. The search looks for an order of the users' requests
// that explains all answers.

// model is the contents of a store, as text.
type model struct{ a, b, n, q string } // "-" for a key that is not there; of a queue its values with ";" behind each

func (w *world) snapshot() model {
	value := func(key string) string {
		if e := w.root.table.values[prefix+key]; e != nil {
			return string(e.frame.Body())
		}
		return "-"
	}
	m := model{value("a"), value("b"), value("n"), ""}
	for _, f := range w.root.table.queues[prefix+"q"] {
		m.q += string(f.Body()) + ";"
	}
	return m
}

// check looks for an order of the requests in the window that explains all answers and the store's
// present state.
func (w *world) check() bool {
	if w.state == (model{}) {
		w.state = model{"-", "-", "-", ""}
	}
	end := w.snapshot()
	of := map[*player]int{}
	s := &search{seen: map[string]bool{}, end: end}
	for _, a := range w.window {
		if a.void || a.op == protocol.OpCancelWait {
			continue
		}
		i, known := of[a.client]
		if !known {
			i = len(s.acts)
			of[a.client], s.acts = i, append(s.acts, nil)
		}
		s.acts[i] = append(s.acts[i], a)
	}
	if !s.explain(w.state, make([]int, len(s.acts)), make([]int, len(s.acts))) {
		slices.SortFunc(w.window, func(a, b *act) int { return a.asked - b.asked })
		text := ""
		for _, a := range w.window {
			text += a.String() + "\n"
		}
		w.t.Errorf("no order explains this, from %+v to %+v:\n%s", w.state, end, text)
		return false
	}
	w.state, w.window = end, nil
	return true
}

// search tries orders. done counts, for each client, how many of its acts already have a place in
// the order. part says which keys of a wait have existed.
type search struct {
	acts [][]*act
	seen map[string]bool
	end  model
}

func (s *search) explain(m model, done, part []int) bool {
	id := fmt.Sprint(m, done, part)
	if s.seen[id] {
		return false
	}
	s.seen[id] = true
	first := -1 // when the earliest remaining act was known to be done
	for i, acts := range s.acts {
		if done[i] < len(acts) && (first < 0 || acts[done[i]].known < first) {
			first = acts[done[i]].known
		}
	}
	if first < 0 {
		return m == s.end
	}
	for i, acts := range s.acts {
		if done[i] == len(acts) || acts[done[i]].asked > first {
			continue
		}
		a := acts[done[i]]
		next, ok, left := m.apply(a, part[i])
		d, p := slices.Clone(done), slices.Clone(part)
		if p[i] = left; left == 0 {
			d[i]++
		}
		if (ok || a.free) && s.explain(next, d, p) || a.free && s.explain(m, d, p) {
			return true
		}
	}
	return false
}

func (m *model) at(key string) *string {
	return map[string]*string{"a": &m.a, "b": &m.b, "n": &m.n}[key]
}

// apply applies a request to a model, and reports whether a store could have given the reply. A
// wait notes all keys that exist; part has the keys that existed before. left is not 0 while some
// keys are missing.
func (m model) apply(a *act, part int) (next model, ok bool, left int) {
	var reply []byte
	value := func(key string) string {
		if v := *m.at(key); v != "-" {
			return v
		}
		return ""
	}
	switch a.op {
	case protocol.OpSet, protocol.OpMultiSet:
		for _, key := range a.keys {
			*m.at(key) = a.value
		}
	case protocol.OpAppend:
		*m.at(a.keys[0]) = value(a.keys[0]) + a.value
	case protocol.OpGet, protocol.OpMultiGet:
		for _, key := range a.keys {
			reply = append(reply, str(value(key))...)
		}
	case protocol.OpAdd:
		var n int64
		fmt.Sscan(value(a.keys[0]), &n)
		m.n = fmt.Sprint(n + a.delta)
		reply = le(n + a.delta)
	case protocol.OpCompareSet:
		p := m.at(a.keys[0])
		switch {
		case *p == "-" && a.want == "", *p == a.want:
			*p = a.value
			reply = str(a.value)
		case *p == "-":
			reply = str(a.want)
		default:
			reply = str(*p)
		}
	case protocol.OpDeleteKey:
		p := m.at(a.keys[0])
		if reply = le(0); *p != "-" {
			*p, reply = "-", le(1)
		}
	case protocol.OpCheck:
		reply = b(protocol.Ready)
		for _, key := range a.keys {
			if *m.at(key) == "-" {
				reply = b(protocol.NotReady)
			}
		}
	case protocol.OpWait:
		had := part
		for i, key := range a.keys {
			if *m.at(key) != "-" {
				part |= 1 << i
			}
		}
		if reply = b(protocol.StopWaiting); part != 1<<len(a.keys)-1 {
			return m, part != had, part
		}
	case protocol.OpQueuePush:
		m.q += a.value + ";"
	case protocol.OpQueuePop:
		n := int64(strings.Count(m.q, ";"))
		if reply = le(n); n > 0 {
			v, rest, _ := strings.Cut(m.q, ";")
			m.q, reply = rest, append(reply, str(v)...)
		}
	case protocol.OpQueueLen:
		reply = le(int64(strings.Count(m.q, ";")))
	case protocol.OpNumKeys:
		n := int64(0)
		for _, v := range []string{m.a, m.b, m.n} {
			if v != "-" {
				n++
			}
		}
		reply = le(n)
	case protocol.OpPing:
		reply = b(1, 2, 3, 4)
	}
	return m, bytes.Equal(reply, a.reply), 0
}
