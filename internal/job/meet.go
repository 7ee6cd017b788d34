package job

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/golaunch/golaunch/placement"
)

// process tells one process from all others: its id on a node, which is that of the whole machine for nodes that share one.
type process struct{ nodeRank, pid int }

const sharedNode = -1

// note keeps the process ids of ranks that were started.
func (s *State) note(g placement.Group, pids []int) {
	for i, b := range g.Bundles {
		s.pids[b.Rank] = 0
		if i < len(pids) {
			s.pids[b.Rank] = pids[i]
		}
	}
}

// met tells who is missing at the start of a gang, or what all but a few wait for.
func (s *State) met(ev Met) string {
	u, _, sl, ok := s.find(ev.Node, ev.Unit, ev.Attempt)
	if !ok || u.phase != Running || sl.NodeRank != 0 {
		return s.ignore()
	}
	before := s.meeting
	s.meeting = s.describe(ev.Clients)
	if s.meeting == before {
		return s.ignore()
	}
	return s.meeting
}

// describe says what the clients of the store come to. It costs O(ranks + clients).
func (s *State) describe(clients []Client) string {
	if len(clients) == 0 {
		return ""
	}
	ranks, homes := s.processes()
	came, keys, waiting := map[int]bool{}, map[int]string{}, map[string]int{}
	strangers, nameless := map[Client]bool{}, 0
	for rank, done := range s.done {
		if done {
			came[rank] = true
		}
	}
	for _, c := range clients {
		rank, known := ranks[process{home(homes, c.Addr), c.PID}]
		switch {
		case c.PID == 0: // torch before 2.5 does not say
			nameless++
			continue
		case !known:
			c.Key = ""
			strangers[c] = true
			continue
		}
		came[rank] = true
		if c.Key != "" && keys[rank] == "" {
			keys[rank] = c.Key
			waiting[c.Key]++
		}
	}
	size, others := len(s.pids), len(strangers)+nameless
	switch {
	case others > 0 && len(came)+others >= size:
		return ""
	case others > 0: // a rank is a shell, perhaps, that has the process that came as its child
		return fmt.Sprintf("%d of %d ranks connected", len(came)+others, size)
	case len(came) < size:
		return fmt.Sprintf("%d of %d ranks connected; missing: %s", len(came), size, s.without(func(rank int) bool { return came[rank] }))
	}
	for key, n := range waiting {
		if n < size && 2*n > size {
			return fmt.Sprintf("%d of %d ranks wait for key %q; not %s", n, size, key,
				s.without(func(rank int) bool { return keys[rank] == key }))
		} else if n == size {
			return fmt.Sprintf("all %d ranks wait for key %q", size, key)
		}
	}
	return ""
}

// processes are the ranks by process, and homes the node ranks by address.
func (s *State) processes() (ranks map[process]int, homes map[netip.Addr]int) {
	ranks, homes = make(map[process]int, len(s.pids)), make(map[netip.Addr]int, len(s.slots))
	for i, sl := range s.slots {
		for _, addr := range append([]netip.Addr{sl.Node.Addr}, sl.Node.Others...) {
			homes[addr.Unmap()] = i
		}
		for _, b := range sl.Bundles {
			if pid := s.pids[b.Rank]; pid != 0 {
				ranks[process{home(homes, sl.Node.Addr), pid}] = b.Rank
			}
		}
	}
	return ranks, homes
}

// home is the node of an address. All loopback addresses are of one machine, whose nodes share its process ids.
func home(homes map[netip.Addr]int, addr netip.Addr) int {
	if i, ok := homes[addr.Unmap()]; ok && !addr.IsLoopback() {
		return i
	}
	return sharedNode
}

// shownRanks bounds how many ranks a reason names.
const shownRanks = 4

// without names the ranks that has does not have.
func (s *State) without(has func(rank int) bool) string {
	var names []string
	more := 0
	for _, sl := range s.slots {
		for _, b := range sl.Bundles {
			switch {
			case has(b.Rank):
			case len(names) == shownRanks:
				more++
			default:
				names = append(names, fmt.Sprintf("rank %d (%s, pid %d)", b.Rank, sl.Node.Name, s.pids[b.Rank]))
			}
		}
	}
	if more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
