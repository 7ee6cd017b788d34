package stacks

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// MergeOptions are of a [Merge].
type MergeOptions struct {
	// Lines tells calls of a function apart by their line everywhere; without it that is done for the innermost one alone, and of others the
	// line is there where all ranks have the same.
	Lines bool
	// Waits tells stacks apart by what the kernel says of the thread too.
	Waits bool
}

// Tree is the stacks of all ranks.
type Tree struct {
	// Ranks are those of which anything is in it, and Processes how many.
	Ranks     Set `json:"ranks"`
	Processes int `json:"processes"`
	// Groups are threads that do the same job in different processes: the main ones first, then those of few ranks.
	Groups []Group `json:"groups"`
	// Missing are the reasons why there is less than everything of some ranks.
	Missing []Missing `json:"missing"`
}

// Group is threads of a role with the same entry.
type Group struct {
	// Role is what their processes do; empty for the ranks themselves.
	Role string `json:"role,omitempty"`
	// Thread is MainThread, or the function that they have begun with.
	Thread string `json:"thread"`
	// Ranks are those of the threads, and Threads how many these are.
	Ranks   Set     `json:"ranks"`
	Threads int     `json:"threads"`
	Nodes   []*Node `json:"nodes"`
}

// Node is a call that some ranks have in common, with all that led to it.
type Node struct {
	Frame
	// Ranks are those that have it, and Threads how many, which may be more: a rank may have several.
	Ranks   Set `json:"ranks"`
	Threads int `json:"threads"`
	// Wait is what the kernel says of a thread. Such a node has no Frame and nothing below it.
	Wait string `json:"wait,omitempty"`
	// GIL are the ranks whose thread holds the interpreter's lock, of those for which this is the innermost call, and Moves those of which
	// the calls further in changed too fast to be read.
	GIL   Set `json:"gil,omitempty"`
	Moves Set `json:"moves,omitempty"`
	// Nodes are the calls that it made, those of the fewest ranks first.
	Nodes []*Node `json:"nodes"`

	below map[Frame]*Node
}

// Missing is a reason why something of some ranks is not there.
type Missing struct {
	Why   string `json:"why"`
	Ranks Set    `json:"ranks"`
}

// Merge makes one tree of samples.
func Merge(samples []Sample, o MergeOptions) Tree {
	samples = slices.Clone(samples)
	slices.SortStableFunc(samples, func(a, b Sample) int { return cmp.Compare(a.Rank, b.Rank) })
	t := Tree{Processes: len(samples)}
	groups := make(map[[2]string]*Node)
	reasons := make(map[string]Set)
	for _, s := range samples {
		t.Ranks = t.Ranks.add(s.Rank)
		if s.Missing != "" {
			reasons[s.Missing] = reasons[s.Missing].add(s.Rank)
		}
		if s.Cut {
			reasons[cutReason] = reasons[cutReason].add(s.Rank)
		}
		for _, thread := range s.Threads {
			key := [2]string{s.Role, thread.entry()}
			if groups[key] == nil {
				groups[key] = &Node{}
			}
			groups[key].insert(s, thread, o)
		}
	}
	for key, root := range groups {
		root.sort()
		t.Groups = append(t.Groups, Group{Role: key[0], Thread: key[1], Ranks: root.Ranks, Threads: root.Threads, Nodes: root.Nodes})
	}
	slices.SortFunc(t.Groups, Group.compare)
	for why, ranks := range reasons {
		t.Missing = append(t.Missing, Missing{why, ranks})
	}
	slices.SortFunc(t.Missing, func(a, b Missing) int { return cmp.Or(compareSets(a.Ranks, b.Ranks), cmp.Compare(a.Why, b.Why)) })
	return t
}

const (
	cutReason = "some threads or frames were left out, for there are too many"
	mainEntry = "MainThread"
)

// entry is what tells a thread from the others of its process, but not from those that do the same elsewhere: names count up.
func (t Thread) entry() string {
	if t.Main {
		return mainEntry
	}
	for _, f := range t.Frames {
		if path.Base(f.File) != "threading.py" {
			return f.Function + " (" + shortFile(f.File) + ")"
		}
	}
	return cmp.Or(t.Name, "a thread without a name")
}

// insert adds a thread's calls below n, which is the root of a group.
func (n *Node) insert(s Sample, t Thread, o MergeOptions) {
	n.count(s.Rank)
	for i, f := range t.Frames {
		key := Frame{Function: f.Function, File: anywhere(f.File)}
		if innermost := i == len(t.Frames)-1; innermost || o.Lines {
			key.Line = f.Line
		}
		n = n.child(key, f)
		if n.Line != f.Line {
			n.Line = 0
		}
		n.count(s.Rank)
	}
	if t.GIL {
		n.GIL = n.GIL.add(s.Rank)
	}
	if t.Moves {
		n.Moves = n.Moves.add(s.Rank)
	}
	if wait := t.waits(); wait != "" && (o.Waits || len(t.Frames) == 0) {
		n = n.child(Frame{Function: wait}, Frame{})
		n.Wait = wait
		n.count(s.Rank)
	}
}

func (n *Node) count(rank int) { n.Ranks, n.Threads = n.Ranks.add(rank), n.Threads+1 }

func (n *Node) child(key, frame Frame) *Node {
	c := n.below[key]
	if c == nil {
		c = &Node{Frame: frame}
		if n.below == nil {
			n.below = make(map[Frame]*Node)
		}
		n.below[key] = c
		n.Nodes = append(n.Nodes, c)
	}
	return c
}

func (n *Node) sort() {
	n.below = nil
	slices.SortFunc(n.Nodes, func(a, b *Node) int {
		return cmp.Or(compareSets(a.Ranks, b.Ranks), cmp.Compare(a.Function, b.Function), cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line), cmp.Compare(a.Wait, b.Wait))
	})
	for _, c := range n.Nodes {
		c.sort()
	}
}

// compareSets puts fewer ranks before more, and lower ones before higher ones.
func compareSets(a, b Set) int {
	if c := cmp.Compare(a.Len(), b.Len()); c != 0 || a.Len() == 0 {
		return c
	}
	return cmp.Compare(a[0].First, b[0].First)
}

// compare puts the ranks before their helpers, and main threads before others.
func (g Group) compare(other Group) int {
	return cmp.Or(order(g.Role == "", other.Role == ""), cmp.Compare(g.Role, other.Role),
		order(g.Thread == mainEntry, other.Thread == mainEntry), compareSets(g.Ranks, other.Ranks), cmp.Compare(g.Thread, other.Thread))
}

// waits is what the kernel says of a thread; empty where it says nothing.
func (t Thread) waits() string {
	words := map[string]string{"R": "runs", "S": "sleeps", "D": "waits for a device", "T": "is stopped", "t": "is traced", "I": "is idle"}
	parts := []string{cmp.Or(words[t.State], t.State)}
	if t.Call != "" {
		parts = append(parts, "in "+t.Call)
	}
	if t.Wait != "" {
		parts = append(parts, "at "+t.Wait)
	}
	return strings.TrimSpace(strings.Join(parts, " "))
}

// anywhere is a file without the place where its node keeps Python and its packages.
func anywhere(file string) string {
	for _, place := range []string{"/site-packages/", "/dist-packages/"} {
		if at := strings.LastIndex(file, place); at >= 0 {
			return file[at+len(place):]
		}
	}
	if at := strings.LastIndex(file, "/lib/python3"); at >= 0 {
		if _, rest, ok := strings.Cut(file[at+len("/lib/python3"):], "/"); ok {
			return rest
		}
	}
	return file
}

// shortFile is a file as a person knows it: in a package, or with the directory that it is in.
func shortFile(file string) string {
	if short := anywhere(file); short != file {
		return short
	}
	if dir := path.Base(path.Dir(file)); strings.HasPrefix(file, "/") && dir != "/" {
		return dir + "/" + path.Base(file)
	}
	return file
}
