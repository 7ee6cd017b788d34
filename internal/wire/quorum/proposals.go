package quorum

// proposals are the entries that a leader has proposed in its term. Entries are committed in order.
type proposals struct {
	// proposed and taken count the entries that were proposed and applied. pending is the size of
	// the entries that are not applied yet.
	proposed, taken uint64
	pending         int
	// waiting are the callbacks that wait for entries, in order.
	waiting []waiter
	// lost says that a proposal was lost.
	lost bool
}

// waiter is called when the entry with a number is committed.
type waiter struct {
	number uint64
	done   func(error)
}

// add adds entries of a total size. done is called once they are committed.
func (p *proposals) add(entries, size int, done func(error)) {
	p.proposed += uint64(entries)
	p.pending += size
	p.waiting = append(p.waiting, waiter{p.proposed, done})
	p.settle()
}

// applied counts an applied entry and its size.
func (p *proposals) applied(size int) {
	p.taken++
	p.pending -= size
	p.settle()
}

func (p *proposals) settle() {
	for len(p.waiting) > 0 && p.waiting[0].number <= p.taken {
		p.waiting[0].done(nil)
		p.waiting = p.waiting[1:]
	}
}

func (p *proposals) end() {
	for _, w := range p.waiting {
		w.done(ErrNotLeader)
	}
}
