package election

import (
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/quorum"
)

// VoterSet chooses the nodes that vote beside the coordinator's own. The coordinator probes a node
// first. The node votes only if the coordinator can reach it.
type VoterSet struct {
	// unprobed are nodes that have not been probed yet. probing counts probes under way. failed
	// counts the failures since a probe last succeeded.
	unprobed        voterQueue
	probing, failed int
	// pause is the length of the last pause after too many failures.
	pause time.Duration
	// reachable are the nodes that vote, or will vote.
	reachable []quorum.Voter
}

// After maxFailedProbes failures in a row the coordinator probes no node for a while. The first
// pause is a lease; each later pause is twice as long, up to maxProbePause. Later probes may
// succeed, because a firewall may be corrected while the job runs.
const (
	maxFailedProbes = 3
	maxProbePause   = 10 * time.Minute
)

// Offer adds a node that could vote.
func (s *VoterSet) Offer(v quorum.Voter) {
	if !slices.Contains(s.reachable, v) {
		s.Remove(v.Name)
		s.unprobed.add(v)
	}
}

// Remove removes a node that has left.
func (s *VoterSet) Remove(node string) {
	s.reachable = slices.DeleteFunc(s.reachable, func(v quorum.Voter) bool { return v.Name == node })
	s.unprobed.remove(node)
}

// Next returns a node to probe, if one is needed. The caller must report the outcome.
func (s *VoterSet) Next() (quorum.Voter, bool) {
	if len(s.reachable)+s.probing >= wire.MaxVoters-1 || s.failed+s.probing >= maxFailedProbes {
		return quorum.Voter{}, false
	}
	v, any := s.unprobed.next()
	if any {
		s.probing++
	}
	return v, any
}

// Succeeded notes that a probed node can be reached.
func (s *VoterSet) Succeeded(v quorum.Voter) {
	s.probing--
	s.failed, s.pause = 0, 0
	s.reachable = append(s.reachable, v)
}

// Failed notes a failed probe. After too many failures the caller must call Resume once pause is
// over.
func (s *VoterSet) Failed(v quorum.Voter, lease time.Duration) (pause time.Duration) {
	s.probing--
	s.unprobed.add(v)
	if s.failed++; s.failed < maxFailedProbes {
		return 0
	}
	s.pause = min(max(2*s.pause, lease), maxProbePause)
	return s.pause
}

// Left notes that a node has left during its probe.
func (s *VoterSet) Left() { s.probing-- }

// Resume ends a pause after failed probes.
func (s *VoterSet) Resume() { s.failed = 0 }

// Adopt starts with the voters of an earlier coordinator.
func (s *VoterSet) Adopt(voters []quorum.Voter) { s.reachable = slices.Clone(voters) }

// Names returns the names of the nodes that vote, or will vote.
func (s *VoterSet) Names() (names []string) {
	for _, v := range s.reachable {
		names = append(names, v.Name)
	}
	return names
}

// Others returns the nodes that should vote now. Together with the coordinator's own node their
// number is odd: an even number of voters survives no more losses than the next lower odd number.
func (s *VoterSet) Others() []quorum.Voter {
	return s.reachable[:electorate(1+len(s.reachable))-1]
}

// electorate returns how many of n nodes vote.
func electorate(n int) int {
	if n < 3 {
		return 1
	}
	return min(wire.MaxVoters, (n-1)|1)
}

// voterQueue has the nodes that could vote, in the order in which they joined. Its methods take
// constant time, because each node of a large job is in the queue.
type voterQueue struct {
	order []string
	// byName has the zero Voter for a node that has left but is still in order.
	byName map[string]quorum.Voter
}

// add appends a node, or updates a node in its place.
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
