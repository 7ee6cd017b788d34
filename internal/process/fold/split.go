package fold

import (
	"iter"
	"math"
	"slices"
)

// splitter is memory for finding what is odd among the lines of a node.
type splitter struct {
	// amounts are those of a value in all lines, and sorted the same in order.
	amounts, sorted []float64
	// class of each line: 0 is usual, and lines of others are apart.
	class   []uint32
	classes map[odd]uint32
	// order is the lines by their class, and ends where each class ends in it.
	order []int32
	ends  []int
	ranks set
	lines []uint64
}

// odd is a line of a class that differs in a value as well.
type odd struct {
	class uint32
	slot  int
	how   string
}

// show gives the groups of a node: what is usual, and what is odd by a value apart.
func (l *lane) show(n *node) {
	s := &l.fold.split
	s.begin(n)
	if len(n.rows) > 1 {
		for i := range n.shape.slots {
			s.look(n, i)
		}
	}
	for lines := range s.byClass() {
		l.fold.give(l.group(n, lines))
	}
}

func (s *splitter) begin(n *node) {
	s.class = slices.Grow(s.class[:0], len(n.entries))[:len(n.entries)]
	clear(s.class)
	clear(s.classes)
}

// apart puts a line into a class of its own kind.
func (s *splitter) apart(line, slot int, how string) {
	if s.classes == nil {
		s.classes = map[odd]uint32{}
	}
	key := odd{s.class[line], slot, how}
	c := s.classes[key]
	if c == 0 {
		c = uint32(len(s.classes) + 1)
		s.classes[key] = c
	}
	s.class[line] = c
}

// look puts apart the lines that are odd by a value.
func (s *splitter) look(n *node, slot int) {
	t := n.shape
	kind, own := t.slots[slot].kind, t.own&(1<<slot) != 0
	switch {
	case kind == Name && own:
		s.names(n, slot)
	case kind == Integer && own:
		s.measure(n, slot)
		s.integers(n, slot)
	case kind == Number && t.keyed&(1<<slot) == 0:
		s.measure(n, slot)
		s.far(slot, 4)
	}
}

// measure has the amounts of a value ready.
func (s *splitter) measure(n *node, slot int) {
	kind := n.shape.slots[slot].kind
	s.amounts = s.amounts[:0]
	for i, e := range n.entries {
		if i > 0 && e.row == n.entries[i-1].row {
			s.amounts = append(s.amounts, s.amounts[i-1])
			continue
		}
		s.amounts = append(s.amounts, amount(kind, n.value(e.row, slot)))
	}
}

// names puts apart the names that are not that of most lines, if there is one, and all of them if they are few.
func (s *splitter) names(n *node, slot int) {
	counts := map[string]int{}
	for _, e := range n.entries {
		counts[string(n.value(e.row, slot))]++
	}
	usual := ""
	for name, count := range counts {
		if 2*count > len(n.entries) {
			usual = name
		}
	}
	if usual == "" && len(counts) >= many {
		return
	}
	n.shape.doubt |= 1 << slot
	s.pick(n, slot, func(i int) bool { return string(n.value(n.entries[i].row, slot)) != usual })
}

// integers puts apart those that are not that of most lines, or not the rank's where nearly all are; all of them if they are few, and
// else those that are far from the others.
func (s *splitter) integers(n *node, slot int) {
	s.sort()
	usual, count, kinds := mode(s.sorted)
	lines := len(n.entries)
	strange := 0
	for i, e := range n.entries {
		if s.amounts[i] != float64(e.rank) {
			strange++
		}
	}
	switch {
	case kinds == 1:
	case 2*count > lines && lines >= 3:
		n.shape.doubt |= 1 << slot
		s.pick(n, slot, func(i int) bool { return s.amounts[i] != usual })
	case 8*strange <= lines:
		s.pick(n, slot, func(i int) bool { return s.amounts[i] != float64(n.entries[i].rank) })
	case kinds < many && s.local(n):
	case kinds < many:
		if lines >= fewest {
			n.shape.doubt |= 1 << slot
		}
		s.pick(n, slot, func(int) bool { return true })
	default:
		s.far(slot, 8)
	}
}

// pick puts lines apart: each by its value, and all together from where the values are too many to be shown one by one.
func (s *splitter) pick(n *node, slot int, lines func(int) bool) {
	values := map[string]bool{}
	for i, e := range n.entries {
		if !lines(i) {
			continue
		}
		how := string(n.value(e.row, slot))
		if len(values) >= maxOdd && !values[how] {
			how = "other"
		} else {
			values[how] = true
		}
		s.apart(i, slot, how)
	}
}

// byClass orders the lines by class, and gives those of each that has any.
func (s *splitter) byClass() iter.Seq[[]int32] {
	s.ends = append(s.ends[:0], make([]int, len(s.classes)+2)...)
	for _, c := range s.class {
		s.ends[c+1]++
	}
	for c := range len(s.classes) + 1 {
		s.ends[c+1] += s.ends[c]
	}
	s.order = slices.Grow(s.order[:0], len(s.class))[:len(s.class)]
	for i, c := range s.class {
		s.order[s.ends[c]] = int32(i)
		s.ends[c]++
	}
	return func(yield func([]int32) bool) {
		begin := 0
		for _, end := range s.ends[:len(s.classes)+1] {
			if lines := s.order[begin:end]; len(lines) > 0 && !yield(lines) {
				return
			}
			begin = end
		}
	}
}

// local says that the values are the numbers of the ranks within their nodes, or of those.
func (s *splitter) local(n *node) bool {
	if len(n.entries) < fewest || s.sorted[0] < 0 || s.sorted[len(s.sorted)-1] > MaxRank {
		return false
	}
	numbers := make([]numbering, len(n.entries))
	for i, e := range n.entries {
		numbers[i] = numbering{int(e.rank), int(s.amounts[i])}
	}
	if inNode(numbers) {
		return true
	}
	slices.SortFunc(numbers, func(a, b numbering) int { return a.rank - b.rank })
	return ofNode(numbers)
}

func (s *splitter) sort() {
	s.sorted = append(s.sorted[:0], s.amounts...)
	slices.Sort(s.sorted)
}

// mode is the most frequent of sorted amounts, how often it is there, and how many different ones there are.
func mode(sorted []float64) (usual float64, count, kinds int) {
	for i := 0; i < len(sorted); kinds++ {
		end := i + 1
		for end < len(sorted) && sorted[end] == sorted[i] {
			end++
		}
		if end-i > count {
			usual, count = sorted[i], end-i
		}
		i = end
	}
	return usual, count, kinds
}

// far puts apart the lines whose amount is far from the others: those above, and those below, of which each is less than a part of all.
func (s *splitter) far(slot, part int) {
	low, high := slices.Min(s.amounts), slices.Max(s.amounts)
	if high-low <= slight*max(math.Abs(low), math.Abs(high)) {
		return
	}
	s.sort()
	low, high = fences(s.sorted, part)
	for i, a := range s.amounts {
		if a < low {
			s.apart(i, slot, "low")
		} else if a > high {
			s.apart(i, slot, "high")
		}
	}
}

const (
	// slight is the part of an amount within which nothing is far.
	slight = 0.02
	// maxOdd is how many values of a node that are odd are told from each other.
	maxOdd = 16
	// enough lines have quartiles that say something of their spread.
	enough = 8
)

// fences are what is not far in sorted amounts: the middle ones but for a part at each end, and what is no further from these than five
// times the distance between quartiles would be, or a small part of the amount. Of a few lines at most one at each end is far: from the
// others more than five times their spread, and half its amount.
func fences(sorted []float64, part int) (low, high float64) {
	last := len(sorted) - 1
	if last+1 < enough {
		return few(sorted)
	}
	q1, q3 := sorted[last/part], sorted[last-last/part]
	least := slight
	if q1 == q3 {
		least = 0.1
	}
	middle := math.Abs(sorted[last/2])
	reach := func(extreme float64) float64 {
		return max(20/float64(part)*(q3-q1), least*max(middle, math.Abs(extreme)))
	}
	return q1 - reach(sorted[0]), q3 + reach(sorted[last])
}

func few(sorted []float64) (low, high float64) {
	low, high = math.Inf(-1), math.Inf(1)
	last := len(sorted) - 1
	above := sorted[last] - sorted[last-1]
	if above > max(5*(sorted[last-1]-sorted[0]), 0.5*max(math.Abs(sorted[last]), math.Abs(sorted[last-1]))) {
		high = sorted[last-1]
	}
	below := sorted[1] - sorted[0]
	if below > max(5*(sorted[last]-sorted[1]), 0.5*max(math.Abs(sorted[0]), math.Abs(sorted[1]))) {
		low = sorted[1]
	}
	return low, high
}
