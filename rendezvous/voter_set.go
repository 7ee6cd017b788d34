package rendezvous

import (
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/quorum"
)

// voterSet chooses the nodes that vote beside the coordinator's own. A node is probed first: it votes
// only if the coordinator can reach it.
type voterSet struct {
	// unprobed are nodes that have not been probed yet, probing counts probes under way, and failed the
	// probes that failed in a row.
	unprobed        voterQueue
	probing, failed int
	// pause is the length of the last pause after too many failures.
	pause time.Duration
	// reachable are those that vote, or are to.
	reachable []quorum.Voter
}

// After maxFailedProbes failures in a row no node is probed for a while: first for a lease, then each
// time for twice as long, up to maxProbePause. A firewall may be mended while the job runs.
const (
	maxFailedProbes = 3
	maxProbePause   = 10 * time.Minute
)

// offer adds a node that could vote.
func (s *voterSet) offer(v quorum.Voter) {
	if !slices.Contains(s.reachable, v) {
		s.remove(v.Name)
		s.unprobed.add(v)
	}
}

func (s *voterSet) remove(node string) {
	s.reachable = slices.DeleteFunc(s.reachable, func(v quorum.Voter) bool { return v.Name == node })
	s.unprobed.remove(node)
}

// next returns a node to probe, if one is needed.
func (s *voterSet) next() (quorum.Voter, bool) {
	if len(s.reachable)+s.probing >= wire.MaxVoters-1 || s.failed+s.probing >= maxFailedProbes {
		return quorum.Voter{}, false
	}
	v, any := s.unprobed.next()
	if any {
		s.probing++
	}
	return v, any
}

func (s *voterSet) succeeded(v quorum.Voter) {
	s.failed, s.pause = 0, 0
	s.reachable = append(s.reachable, v)
}

// failedFor notes a failed probe. After too many the caller must call resume once pause is over.
func (s *voterSet) failedFor(v quorum.Voter, lease time.Duration) (pause time.Duration) {
	s.unprobed.add(v)
	if s.failed++; s.failed < maxFailedProbes {
		return 0
	}
	s.pause = min(max(2*s.pause, lease), maxProbePause)
	return s.pause
}

// others are the nodes that should vote now. With the coordinator's own their number is odd: an even
// number of voters survives no more losses than the odd one below it.
func (s *voterSet) others() []quorum.Voter {
	return s.reachable[:electorate(1+len(s.reachable))-1]
}

// electorate is how many of n nodes vote.
func electorate(n int) int {
	if n < 3 {
		return 1
	}
	return min(wire.MaxVoters, (n-1)|1)
}

// voterQueue has nodes that could vote, in the order in which they came. Its methods take constant
// time, for each node of a large job is one.
type voterQueue struct {
	order []string
	// byName has the zero Voter for a node that has left but is still in order.
	byName map[string]quorum.Voter
}

// add appends a node, or updates it in its place.
func (q *voterQueue) add(v quorum.Voter) {
	if q.byName == nil {
		q.byName = map[string]quorum.Voter{}
	}
	if _, queued := q.byName[v.Name]; !queued {
		q.order = append(q.order, v.Name)
	}
	q.byName[v.Name] = v
}

func (q *voterQueue) remove(node string) {
	if _, queued := q.byName[node]; queued {
		q.byName[node] = quorum.Voter{}
	}
}

// next removes and returns the first node.
func (q *voterQueue) next() (quorum.Voter, bool) {
	for len(q.order) > 0 {
		v := q.byName[q.order[0]]
		delete(q.byName, q.order[0])
		q.order = q.order[1:]
		if v.ID != 0 {
			return v, true
		}
	}
	return quorum.Voter{}, false
}
