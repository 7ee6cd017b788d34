package stacks

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/internal/process/fold"
)

// MergeOptions are the options of [Merge].
type MergeOptions struct {
	// Lines distinguishes calls of a function by their line. Otherwise only the innermost calls are
	// distinguished by line, and other calls have a line if all ranks agree on it.
	Lines bool
	// Waits also distinguishes stacks by the place where the thread waits in the kernel.
	Waits bool
}

// Tree has the merged stacks of all ranks.
type Tree struct {
	// Ranks are the ranks in the tree, and Processes is the number of their processes.
	Ranks     fold.Ranks `json:"ranks"`
	Processes int        `json:"processes"`
	// Groups have the threads that do the same work in different processes: the main threads first,
	// then the groups of the fewest ranks.
	Groups []Group `json:"groups"`
	// Missing are the reasons why the stacks of some ranks are incomplete.
	Missing []Missing `json:"missing"`
}

// Group has the threads of a role with the same entry function.
type Group struct {
	// Role is the task of the processes; empty for the ranks themselves.
	Role string `json:"role,omitempty"`
	// Thread is MainThread, or the outermost function.
	Thread  string     `json:"thread"`
	Ranks   fold.Ranks `json:"ranks"`
	Threads int        `json:"threads"`
	Nodes   []*Node    `json:"nodes"`
}

// Node is a call that some ranks share, with all calls that led to it.
type Node struct {
	Frame
	// Threads may exceed the number of ranks: a rank may have several.
	Ranks   fold.Ranks `json:"ranks"`
	Threads int        `json:"threads"`
	// Wait is where the threads wait in the kernel. Such a node has no Frame and no Nodes.
	Wait string `json:"wait,omitempty"`
	// GIL are the ranks whose thread is in this innermost call and holds the interpreter lock.
	// Moves are the ranks whose inner calls changed too fast to be read.
	GIL   fold.Ranks `json:"gil,omitempty"`
	Moves fold.Ranks `json:"moves,omitempty"`
	// Nodes are the calls made from here, sorted by how few ranks made them.
	Nodes []*Node `json:"nodes"`

	below map[Frame]*Node
}

// Missing is a reason why the stacks of some ranks are incomplete.
type Missing struct {
	Why   string     `json:"why"`
	Ranks fold.Ranks `json:"ranks"`
}

// Merge makes a tree of samples.
func Merge(samples []Sample, o MergeOptions) Tree {
	samples = slices.Clone(samples)
	slices.SortStableFunc(samples, func(a, b Sample) int { return cmp.Compare(a.Rank, b.Rank) })
	t := Tree{Processes: len(samples)}
	groups := make(map[[2]string]*Node)
	reasons := make(map[string]fold.Ranks)
	for _, s := range samples {
		t.Ranks = t.Ranks.With(s.Rank)
		if s.Missing != "" {
			reasons[s.Missing] = reasons[s.Missing].With(s.Rank)
		}
		if s.Cut {
			reasons[cutReason] = reasons[cutReason].With(s.Rank)
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

// entry distinguishes a thread from other threads of its process, but not from its counterparts in
// other processes. Thread names would not do, because Python numbers them.
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

// insert adds a thread's calls below n, the root of a group.
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
		n.GIL = n.GIL.With(s.Rank)
	}
	if t.Moves {
		n.Moves = n.Moves.With(s.Rank)
	}
	if wait := t.waits(); wait != "" && (o.Waits || len(t.Frames) == 0) {
		n = n.child(Frame{Function: wait}, Frame{})
		n.Wait = wait
		n.count(s.Rank)
	}
}

func (n *Node) count(rank int) { n.Ranks, n.Threads = n.Ranks.With(rank), n.Threads+1 }

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
			cmp.Compare(a.Line, b.Line), cmp.Compare(a.Wait, b.Wait), order(a.innermost(), b.innermost()))
	})
	for _, c := range n.Nodes {
		c.sort()
	}
}

// innermost reports whether n is the innermost call of its threads. A call from which threads have
// called other functions is another node, even at the same line.
func (n *Node) innermost() bool {
	return !slices.ContainsFunc(n.Nodes, func(c *Node) bool { return c.Wait == "" })
}

// compareSets puts fewer ranks before more, and lower ones before higher ones.
func compareSets(a, b fold.Ranks) int {
	if c := cmp.Compare(a.Len(), b.Len()); c != 0 || a.Len() == 0 {
		return c
	}
	return cmp.Compare(a[0].First, b[0].First)
}

// compare puts ranks before their helpers, and main threads before others.
func (g Group) compare(other Group) int {
	return cmp.Or(order(g.Role == "", other.Role == ""), cmp.Compare(g.Role, other.Role),
		order(g.Thread == mainEntry, other.Thread == mainEntry), compareSets(g.Ranks, other.Ranks), cmp.Compare(g.Thread, other.Thread))
}

// waits returns where a thread waits in the kernel; empty if unknown.
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

// anywhere returns the name of a file without the node's own path to Python and its packages.
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

// shortFile returns the path of a file within its package, or its name with its directory.
func shortFile(file string) string {
	if short := anywhere(file); short != file {
		return short
	}
	if dir := path.Base(path.Dir(file)); strings.HasPrefix(file, "/") && dir != "/" {
		return dir + "/" + path.Base(file)
	}
	return file
}
