package job

import (
	"fmt"
	"net/netip"
	"strings"
)

// process identifies a process: its id on a node, or on a machine whose nodes share the ids.
type process struct{ nodeRank, pid int }

const sharedNode = -1

// met takes note of how the start of a gang goes.
func (s *State) met(ev Met) string {
	u, _, sl, ok := s.find(ev.Node, ev.Unit, ev.Attempt)
	if !ok || s.grouped() || u.phase != Running || sl.NodeRank != 0 || s.progress.meeting == ev.Why && ev.Complete == nil {
		return s.step.ignore()
	}
	s.progress.meet(ev.Why)
	return ev.Why
}

// Meeting says which ranks are missing at the start of a gang, or what all but a few wait for: the
// text of a [Met]. It costs O(ranks + clients).
func (s *State) Meeting(m Meeting) string {
	if len(m.Clients) == 0 {
		return s.countMeeting(m)
	}
	ranks, homes := s.processes()
	came, waits := map[int]bool{}, map[int]bool{}
	others := 0
	for rank, done := range s.progress.done {
		if done {
			came[rank] = true
		}
	}
	for _, c := range m.Clients {
		rank, known := ranks[process{home(homes, c.Addr), c.PID}]
		if !known || c.PID == 0 { // torch before 2.5 does not say
			others++
			continue
		}
		came[rank] = true
		if c.Key != "" {
			waits[rank] = true
		}
	}
	size := len(s.progress.pids)
	switch {
	case others > 0 && len(came)+others >= size:
		return ""
	case others > 0: // a rank may be a shell whose child is the process that came
		return connected(len(came)+others, size)
	case len(came) < size:
		return connected(len(came), size) + "; missing: " + s.without(func(rank int) bool { return came[rank] })
	case mostWait(len(waits), size) && len(waits) < size:
		return waiting(len(waits), size, m.Key) + "; not " + s.without(func(rank int) bool { return waits[rank] })
	}
	return waiting(len(waits), size, m.Key)
}

// Completed says which rank was the last to connect; nil while some are missing.
func (s *State) Completed(m Meeting) *Complete {
	if m.Last == nil {
		return nil
	}
	c := &Complete{Last: -1, Ago: m.Ago}
	ranks, homes := s.processes()
	if rank, known := ranks[process{home(homes, m.Last.Addr), m.Last.PID}]; known && m.Last.PID != 0 {
		c.Last = rank
	}
	return c
}

// countMeeting is what can be said of so many clients that none is named.
func (s *State) countMeeting(m Meeting) string {
	came, size := m.Came, len(s.progress.pids)
	for _, done := range s.progress.done {
		if done {
			came++
		}
	}
	switch {
	case m.Came == 0:
		return ""
	case came < size:
		return connected(came, size)
	}
	return waiting(m.Waiting, size, m.Key)
}

func connected(n, size int) string { return fmt.Sprintf("%d of %d ranks connected", n, size) }

func mostWait(n, size int) bool { return 2*n > size && n <= size }

// waiting is empty unless most ranks wait for one key.
func waiting(n, size int, key string) string {
	switch {
	case !mostWait(n, size):
		return ""
	case n == size:
		return fmt.Sprintf("all %d ranks wait for key %q", size, key)
	}
	return fmt.Sprintf("%d of %d ranks wait for key %q", n, size, key)
}

// processes returns the ranks by process, and the node ranks by address. Nodes of one machine share
// its process ids: the first stands for all.
func (s *State) processes() (ranks map[process]int, homes map[netip.Addr]int) {
	ranks, homes = make(map[process]int, len(s.progress.pids)), make(map[netip.Addr]int, len(s.plan.slots))
	for i, sl := range s.plan.slots {
		for _, addr := range append([]netip.Addr{sl.Node.Addr}, sl.Node.Others...) {
			if _, shared := homes[addr.Unmap()]; !shared {
				homes[addr.Unmap()] = i
			}
		}
		for _, b := range sl.Bundles {
			if pid := s.progress.pids[b.Rank]; pid != 0 {
				ranks[process{home(homes, sl.Node.Addr), pid}] = b.Rank
			}
		}
	}
	return ranks, homes
}

// home is the node of an address. All loopback addresses are of one machine, whose nodes share its
// process ids.
func home(homes map[netip.Addr]int, addr netip.Addr) int {
	if i, ok := homes[addr.Unmap()]; ok && !addr.IsLoopback() {
		return i
	}
	return sharedNode
}

// shownRanks bounds how many ranks a reason names.
const shownRanks = 4

// without names the ranks for which has is false.
func (s *State) without(has func(rank int) bool) string {
	var names []string
	more := 0
	for _, sl := range s.plan.slots {
		for _, b := range sl.Bundles {
			switch {
			case has(b.Rank):
			case len(names) == shownRanks:
				more++
			default:
				names = append(names, fmt.Sprintf("rank %d (%s, pid %d)", b.Rank, sl.Node.Name, s.progress.pids[b.Rank]))
			}
		}
	}
	if more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
