// Package meeting says which ranks of a gang have connected to its store, and for which ranks the
// others wait.
package meeting

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// Ranks are the ranks of a job and their processes.
type Ranks struct {
	// Groups are the ranks by node rank.
	Groups []placement.Group
	// PIDs are the process ids of the ranks, 0 for unknown ones. Done says for each rank whether it
	// has exited 0.
	PIDs []int
	Done []bool
}

// Text says which ranks are missing at the start of a gang, or for which key all but a few ranks
// wait. It costs O(ranks + clients).
func (r Ranks) Text(m job.Meeting) string {
	if len(m.Clients) == 0 {
		return r.count(m)
	}
	rankOf := r.Find()
	came, waits := map[int]bool{}, map[int]bool{}
	others := 0
	for rank, done := range r.Done {
		if done {
			came[rank] = true
		}
	}
	for _, c := range m.Clients {
		rank, known := rankOf(c)
		if !known || c.PID == 0 { // the client is torch before 2.5, which sends no process id
			others++
			continue
		}
		came[rank] = true
		if c.Key != "" {
			waits[rank] = true
		}
	}
	size := len(r.PIDs)
	switch {
	case others > 0 && len(came)+others >= size:
		return ""
	case others > 0: // a rank may be a shell whose child has connected
		return connected(len(came)+others, size)
	case len(came) < size:
		return connected(len(came), size) + "; missing: " + r.Without(func(rank int) bool { return came[rank] })
	case mostWait(len(waits), size) && len(waits) < size:
		return waiting(len(waits), size, m.Key) + "; not " + r.Without(func(rank int) bool { return waits[rank] })
	}
	return waiting(len(waits), size, m.Key)
}

// Completed says which rank was the last to connect. It is nil while ranks are missing.
func (r Ranks) Completed(m job.Meeting) *job.Complete {
	if m.Last == nil {
		return nil
	}
	c := &job.Complete{Last: -1, Ago: m.Ago}
	if rank, known := r.Find()(*m.Last); known && m.Last.PID != 0 {
		c.Last = rank
	}
	return c
}

// count describes clients that are too many to be named.
func (r Ranks) count(m job.Meeting) string {
	came, size := m.Came, len(r.PIDs)
	for _, done := range r.Done {
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

// process identifies a process by its id and its node, or by its id alone on a machine whose nodes
// share the process ids.
type process struct{ nodeRank, pid int }

const sharedNode = -1

// Find returns a function that finds the rank of a process. Nodes of one machine share its process
// ids, so its first node stands for all of them.
func (r Ranks) Find() func(job.Client) (rank int, known bool) {
	ranks, homes := make(map[process]int, len(r.PIDs)), make(map[netip.Addr]int, len(r.Groups))
	for i, g := range r.Groups {
		for _, addr := range append([]netip.Addr{g.Node.Addr}, g.Node.Others...) {
			if _, shared := homes[addr.Unmap()]; !shared {
				homes[addr.Unmap()] = i
			}
		}
		for _, b := range g.Bundles {
			if pid := r.PIDs[b.Rank]; pid != 0 {
				ranks[process{home(homes, g.Node.Addr), pid}] = b.Rank
			}
		}
	}
	return func(c job.Client) (rank int, known bool) {
		rank, known = ranks[process{home(homes, c.Addr), c.PID}]
		return rank, known
	}
}

// home returns the node rank of an address. All loopback addresses belong to one machine, whose
// nodes share its process ids.
func home(homes map[netip.Addr]int, addr netip.Addr) int {
	if i, ok := homes[addr.Unmap()]; ok && !addr.IsLoopback() {
		return i
	}
	return sharedNode
}

// shownRanks bounds how many ranks a reason names.
const shownRanks = 4

// Without names the ranks for which has is false.
func (r Ranks) Without(has func(rank int) bool) string {
	var names []string
	more := 0
	for _, g := range r.Groups {
		for _, b := range g.Bundles {
			switch {
			case has(b.Rank):
			case len(names) == shownRanks:
				more++
			default:
				names = append(names, fmt.Sprintf("rank %d (%s, pid %d)", b.Rank, g.Node.Name, r.PIDs[b.Rank]))
			}
		}
	}
	if more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
