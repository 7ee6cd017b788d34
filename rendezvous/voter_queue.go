package rendezvous

import "github.com/golaunch/golaunch/internal/wire/quorum"

// nominees are nodes that could vote, in the order in which they came. What is done with one costs the same however many there are: each node
// of a large job is one.
type nominees struct {
	order []string
	// by has a zero value for a node that has left, for as long as it is in order.
	by map[string]quorum.Voter
}

// add puts a node behind all others, or in its own place if it is there already.
func (n *nominees) add(v quorum.Voter) {
	if n.by == nil {
		n.by = map[string]quorum.Voter{}
	}
	if _, there := n.by[v.Name]; !there {
		n.order = append(n.order, v.Name)
	}
	n.by[v.Name] = v
}

func (n *nominees) drop(node string) {
	if _, there := n.by[node]; there {
		n.by[node] = quorum.Voter{}
	}
}

// next takes the first of them.
func (n *nominees) next() (quorum.Voter, bool) {
	for len(n.order) > 0 {
		v := n.by[n.order[0]]
		delete(n.by, n.order[0])
		n.order = n.order[1:]
		if v.ID != 0 {
			return v, true
		}
	}
	return quorum.Voter{}, false
}
