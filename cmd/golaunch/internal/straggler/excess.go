package straggler

// measure computes full, excess and limit from the ring.
func (s *sense) measure() {
	if !s.knows() {
		return
	}
	for _, r := range s.ranks {
		s.excess[r], s.full[r] = s.of(r)
	}
	s.gather()
	s.bound()
}

// bound sets the limit from the differences of ranks from the median rank of their node, or of the
// job if the node has too few ranks.
func (s *sense) bound() {
	s.limit = s.floor
	s.scratch = s.scratch[:0]
	for r := 0; r < len(s.ranks); r += stride(len(s.ranks)) {
		if v := s.full[r]; known(v) {
			s.scratch = append(s.scratch, v-s.shared(r))
		}
	}
	if len(s.scratch) > 3 {
		s.limit = max(s.limit, beyond(len(s.ranks))*spread(s.scratch, median(s.scratch)))
	}
}

// gather computes the excess of the median rank of each node.
func (s *sense) gather() {
	if s.common == nil {
		s.common = make([]float32, len(s.homes))
	}
	for n, ranks := range s.homes {
		s.scratch = draw(ranks, s.full, s.scratch)
		if s.common[n] = nan; len(s.scratch) > 1 {
			s.common[n] = median(s.scratch)
		}
	}
}

// shared is the excess that a rank shares with its node; 0 if the node has too few ranks for a
// comparison.
func (s *sense) shared(r int) float32 {
	n := s.node[r]
	if len(s.homes[n]) < leastHome || len(s.homes) < 2 || !known(s.common[n]) {
		return 0
	}
	return s.common[n]
}

// beginning is the excess that a rank already had while the watch learned its usual value. It is
// the rank's excess over all ranks or, if less, over the rank's node; the node does not count if it
// sticks out too.
func (s *sense) beginning(r int, middle float32) float64 {
	over := float64(s.usual[r]/middle*min(1, 1+s.full[r], 1+s.excess[r])) - 1
	home := s.homes[s.node[r]]
	if len(home) < leastHome {
		return over
	}
	s.scratch = draw(home, s.usual, s.scratch)
	common := median(s.scratch)
	if float64(common/middle)-1 > s.start {
		return over
	}
	return min(over, float64(s.usual[r]/common)-1)
}

// leastHome is the number of ranks of a node from which on the watch can decide whether one rank
// sticks out or the whole node does.
const leastHome = 4

// shape is the weight of a slot. It is less at both ends of the window, so that the number of steps
// that begin in the window matters little.
func (s *sense) shape(i int) float32 { return float32(min(i+1, s.taper, s.window-i)) }

// of returns how much longer than usual a rank takes: full for all slots, and excess without the
// s.drop neighbouring slots that stick out most.
func (s *sense) of(r int) (excess, full float32) {
	var mine, theirs [maxWindow]float32
	u, got, first := s.usual[r], 0, s.slots%s.window
	if int(s.seen[r]) < s.learn {
		return nan, nan
	}
	var sum, all float32
	for i := range s.window {
		at := (first + i) % s.window
		v, m := s.ring[r*s.window+at], s.middle[at]
		if known(v) && known(m) {
			mine[i], theirs[i], got = v, u*m, got+1
			sum, all = sum+s.shape(i)*v, all+s.shape(i)*u*m
		}
	}
	if 4*got < 3*s.window || all <= 0 {
		return nan, nan
	}
	return s.trimmed(mine[:s.window], theirs[:s.window]), sum/all - 1
}

// trimmed is the amount by which mine exceed theirs, without the s.drop neighbouring slots with the
// greatest excess.
func (s *sense) trimmed(mine, theirs []float32) float32 {
	from := s.peak(mine, theirs)
	var a, b float32
	for i := range mine {
		if i < from || i >= from+s.drop {
			a, b = a+mine[i], b+theirs[i]
		}
	}
	if b <= 0 {
		return nan
	}
	return a/b - 1
}

// peak is the first of the s.drop neighbouring slots in which mine exceed theirs most.
func (s *sense) peak(mine, theirs []float32) (from int) {
	var sum, best float32
	for i := range mine {
		sum += mine[i] - theirs[i]
		if i >= s.drop {
			sum -= mine[i-s.drop] - theirs[i-s.drop]
		}
		if i == s.drop-1 || i >= s.drop && sum > best {
			best, from = sum, i-s.drop+1
		}
	}
	return from
}

const maxWindow = 40

// began returns how many slots ago a rank began to stick out, at most the length of the ring.
func (s *sense) began(r int) int {
	half, far := s.full[r]/2, 0
	for ago := 1; ago <= min(s.window, s.slots); ago++ {
		at := (s.slots - ago) % s.window
		v, m := s.ring[r*s.window+at], s.middle[at]
		if v-s.usual[r]*m > half*s.usual[r]*m {
			far = ago
		}
	}
	return far
}
