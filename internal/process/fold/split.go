package fold

import (
	"iter"
	"math"
	"slices"
)

// splitter is reused memory for finding unusual lines in a group.
type splitter struct {
	// amounts are the amounts of a value in all lines; sorted has them in order.
	amounts, sorted []float64
	// class of each line: 0 is usual, and each other class becomes a group of its own.
	class   []uint32
	classes map[classKey]uint32
	// order has the lines sorted by class; ends has the end of each class in order.
	order []int32
	ends  []int
	ranks set
	lines []uint64
}

// classKey identifies a class: by another class and an unusual value of lines in that class.
type classKey struct {
	class uint32
	slot  int
	how   string
}

// emitGroups returns the usual lines of a group as one group, and the unusual ones apart.
func (l *streamFolder) emitGroups(n *openGroup) {
	s := &l.fold.split
	s.begin(n)
	if len(n.rows) > 1 {
		for i := range n.shape.slots {
			s.splitBy(n, i)
		}
	}
	for lines := range s.byClass() {
		l.fold.give(l.group(n, lines))
	}
}

func (s *splitter) begin(n *openGroup) {
	s.class = slices.Grow(s.class[:0], len(n.entries))[:len(n.entries)]
	clear(s.class)
	clear(s.classes)
}

// setApart moves a line into another class.
func (s *splitter) setApart(line, slot int, how string) {
	if s.classes == nil {
		s.classes = map[classKey]uint32{}
	}
	key := classKey{s.class[line], slot, how}
	c := s.classes[key]
	if c == 0 {
		c = uint32(len(s.classes) + 1)
		s.classes[key] = c
	}
	s.class[line] = c
}

// splitBy sets apart the lines with an unusual value in a slot.
func (s *splitter) splitBy(n *openGroup, slot int) {
	t := n.shape
	kind, own := t.slots[slot].kind, t.varying&(1<<slot) != 0
	switch {
	case kind == Name && own:
		s.splitNames(n, slot)
	case kind == Integer && own:
		s.measure(n, slot)
		s.splitIntegers(n, slot)
	case kind == Number && t.keyed&(1<<slot) == 0:
		s.measure(n, slot)
		s.splitOutliers(slot, 4)
	}
}

// measure computes the amounts of a value.
func (s *splitter) measure(n *openGroup, slot int) {
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

// splitNames sets apart the names that most lines do not share. If no name is shared and there are
// few names, it sets each name apart.
func (s *splitter) splitNames(n *openGroup, slot int) {
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
	if usual == "" && len(counts) >= minValues {
		return
	}
	n.shape.doubtful |= 1 << slot
	s.setApartIf(n, slot, func(i int) bool { return string(n.value(n.entries[i].row, slot)) != usual })
}

// splitIntegers sets lines apart by a number. If more than half of the lines have the same number,
// it sets the other lines apart. If nearly all lines have their rank's number, it sets the other
// lines apart. Otherwise it sets each number apart if there are few numbers, and outliers if there
// are many.
func (s *splitter) splitIntegers(n *openGroup, slot int) {
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
		n.shape.doubtful |= 1 << slot
		s.setApartIf(n, slot, func(i int) bool { return s.amounts[i] != usual })
	case 8*strange <= lines:
		s.setApartIf(n, slot, func(i int) bool { return s.amounts[i] != float64(n.entries[i].rank) })
	case kinds < minValues && s.areNodeNumbers(n):
	case kinds < minValues:
		if lines >= minRanks {
			n.shape.doubtful |= 1 << slot
		}
		s.setApartIf(n, slot, func(int) bool { return true })
	default:
		s.splitOutliers(slot, 8)
	}
}

// setApartIf sets lines apart by value. If there are too many values, lines with the further values
// are one class.
func (s *splitter) setApartIf(n *openGroup, slot int, lines func(int) bool) {
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
		s.setApart(i, slot, how)
	}
}

// byClass sorts the lines by class and yields the lines of each class.
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

// areNodeNumbers reports whether the values number the ranks within nodes, or the nodes.
func (s *splitter) areNodeNumbers(n *openGroup) bool {
	if len(n.entries) < minRanks || s.sorted[0] < 0 || s.sorted[len(s.sorted)-1] > MaxRank {
		return false
	}
	numbers := make([]numbering, len(n.entries))
	for i, e := range n.entries {
		numbers[i] = numbering{int(e.rank), int(s.amounts[i])}
	}
	if areLocalRanks(numbers) {
		return true
	}
	slices.SortFunc(numbers, func(a, b numbering) int { return a.rank - b.rank })
	return areNodeRanks(numbers)
}

func (s *splitter) sort() {
	s.sorted = append(s.sorted[:0], s.amounts...)
	slices.Sort(s.sorted)
}

// mode returns the most frequent of sorted amounts, its count, and the number of different amounts.
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

// splitOutliers sets apart the lines whose amount is far above or below the other amounts: on each
// side, at most 1/part of the lines.
func (s *splitter) splitOutliers(slot, part int) {
	low, high := slices.Min(s.amounts), slices.Max(s.amounts)
	if high-low <= negligible*max(math.Abs(low), math.Abs(high)) {
		return
	}
	s.sort()
	low, high = fences(s.sorted, part)
	for i, a := range s.amounts {
		if a < low {
			s.setApart(i, slot, "low")
		} else if a > high {
			s.setApart(i, slot, "high")
		}
	}
}

const (
	// negligible is the least distance of an outlier from the others, as a part of its amount.
	negligible = 0.02
	// maxOdd is the number of unusual values of a group that are distinguished.
	maxOdd = 16
	// minForQuartiles is the number of lines that give meaningful quartiles.
	minForQuartiles = 8
)

// fences are the limits beyond which sorted amounts are outliers. They lie five interquartile
// distances beyond the middle amounts, or a small part of the amount if that is more. Among few
// lines, at most one on each side is an outlier: its distance from the others must be more than
// five times their spread, and more than half its amount.
func fences(sorted []float64, part int) (low, high float64) {
	last := len(sorted) - 1
	if last+1 < minForQuartiles {
		return fencesOfFew(sorted)
	}
	q1, q3 := sorted[last/part], sorted[last-last/part]
	least := negligible
	if q1 == q3 {
		least = 0.1
	}
	middle := math.Abs(sorted[last/2])
	reach := func(extreme float64) float64 {
		return max(20/float64(part)*(q3-q1), least*max(middle, math.Abs(extreme)))
	}
	return q1 - reach(sorted[0]), q3 + reach(sorted[last])
}

func fencesOfFew(sorted []float64) (low, high float64) {
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
