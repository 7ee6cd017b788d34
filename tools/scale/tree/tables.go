package main

import (
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"text/tabwriter"

	"github.com/golaunch/golaunch/internal/wire"
)

// tables are what is printed of a model, for clusters and trees of several sizes.
type tables struct {
	Model
	Load
	sizes, widths []int
}

// shape is a star, or a tree, of a model.
type shape struct {
	name string
	Model
}

func (t tables) shapes(nodes int) []shape {
	star := t.Model
	star.Nodes, star.Width = nodes, nodes
	all := []shape{{"star", star}}
	for _, merges := range []bool{false, true} {
		for _, width := range t.widths {
			tree := star
			tree.Width, tree.Merges = width, merges
			name := fmt.Sprint("passes on, ", width)
			if merges {
				name = fmt.Sprint("merges, ", width)
			}
			all = append(all, shape{name, tree})
		}
	}
	return all
}

func table(w io.Writer, head ...string) (row func(...string), end func()) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row = func(cells ...string) { fmt.Fprintln(t, strings.Join(cells, "\t")+"\t") }
	row(head...)
	return row, func() {
		_ = t.Flush() // standard output
		fmt.Fprintln(w)
	}
}

// works prints how long each work takes, in seconds, what it costs the coordinator of a star, and what the agent that has most to do in the
// last of the trees that pass messages on.
func (t tables) works(w io.Writer) {
	for _, of := range t.Load.works(t.Cost) {
		fmt.Fprintln(w, of.name)
		head := []string{"nodes"}
		for _, s := range t.shapes(1) {
			head = append(head, s.name)
		}
		row, end := table(w, append(head, "star: cores", "MB in", "MB out", "busiest agent")...)
		for _, nodes := range t.sizes {
			cells := []string{fmt.Sprint(nodes)}
			var all []Result
			for _, s := range t.shapes(nodes) {
				r := s.Run(of.rounds...)
				all = append(all, r)
				cells = append(cells, fmt.Sprintf("%.3f s", r.Took))
			}
			star, tree := all[0], all[len(t.widths)]
			row(append(cells, fmt.Sprintf("%.2f s", star.Head), mega(star.In), mega(star.Out), fmt.Sprintf("%.2f s", tree.Agent))...)
		}
		end()
	}
}

func mega(bytes int) string { return fmt.Sprintf("%.1f", float64(bytes)/1e6) }

// resting is which part of a core the coordinator needs when nothing happens: a heartbeat each way, a third of a lease apart.
func (m Model) resting() float64 {
	return m.Beat * float64(min(m.Nodes, m.Width)) / (wire.DefaultLease / 3).Seconds()
}

func (t tables) rest(w io.Writer) {
	fmt.Fprintln(w, "nothing happens: of a core of the coordinator")
	row, end := table(w, "nodes", "star", "tree")
	for _, nodes := range t.sizes {
		star := t.Model
		star.Nodes, star.Width = nodes, nodes
		tree := star
		tree.Width = t.widths[0]
		row(fmt.Sprint(nodes), fmt.Sprintf("%.1f %%", 100*star.resting()), fmt.Sprintf("%.2f %%", 100*tree.resting()))
	}
	end()
}

// cut is how many agents have others below them, and how many nodes a failure of one of those cuts off, on average and at most.
func (m Model) cut() (inner int, mean float64, most int) {
	all := 0
	for _, size := range m.sizes()[1:] {
		if size > 1 {
			inner++
			all += size - 1
			most = max(most, size-1)
		}
	}
	return inner, float64(all) / float64(max(inner, 1)), most
}

func (t tables) faults(w io.Writer, rate float64) {
	fmt.Fprintf(w, "a node fails that others are below (%.2f of 1,000 nodes in a day)\n", rate)
	row, end := table(w, "nodes", "width", "levels", "agents with others below", "such failures a day", "nodes cut off: mean", "most")
	for _, nodes := range t.sizes {
		for _, width := range t.widths {
			m := Model{Nodes: nodes, Width: width}
			inner, mean, most := m.cut()
			levels := 0
			for v := nodes; v > 0; v = m.parent(v) {
				levels++
			}
			row(fmt.Sprint(nodes), fmt.Sprint(width), fmt.Sprint(levels), fmt.Sprint(inner), fmt.Sprintf("%.2f", rate*float64(inner)/1000),
				fmt.Sprintf("%.0f", mean), fmt.Sprint(most))
		}
	}
	end()
}

// pays prints from which size on a tree that merges saves so many seconds.
func (t tables) pays(w io.Writer, worth float64) {
	cards := []float64{1e9, 10e9, 25e9, 100e9}
	for _, of := range t.Load.works(t.Cost) {
		fmt.Fprintf(w, "%s: nodes from which on a tree saves %v s\n", of.name, worth)
		row, end := table(w, "cores", "1 Gb/s", "10 Gb/s", "25 Gb/s", "100 Gb/s")
		for _, cores := range []int{2, 4, 8, 16, 32, 64} {
			cells := []string{fmt.Sprint(cores)}
			for _, card := range cards {
				t.Cores, t.Card, t.AgentCard = cores, card, card
				cells = append(cells, t.payingFrom(of.rounds, worth))
			}
			row(cells...)
		}
		end()
	}
}

// payingFrom takes it that what pays at one size does so at a larger one.
func (t tables) payingFrom(rounds []Round, worth float64) string {
	j := sort.Search(len(t.sizes), func(j int) bool {
		all := t.shapes(t.sizes[j])
		star := all[0].Run(rounds...).Took
		return star >= worth && slices.ContainsFunc(all[1:], func(s shape) bool { return s.Merges && star-s.Run(rounds...).Took >= worth })
	})
	if j == len(t.sizes) {
		return "none"
	}
	return fmt.Sprint(t.sizes[j])
}
