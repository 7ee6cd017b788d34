package stacks

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/golaunch/golaunch/internal/process/fold"
)

const (
	// narrowest is the least width of a line, in characters.
	narrowest = 40
	// maxIndent bounds the indentation of a line.
	maxIndent = 24
	// maxLines bounds the lines of a tree.
	maxLines = 20000
)

type printer struct {
	w     io.Writer
	width int
	lines int
	err   error
}

// Text writes the tree for a terminal with that many columns. The calls of a stack are lines with
// the same indentation, the outermost call first. Where ranks differ, the stack forks into indented
// branches, the branches of the fewest ranks first.
func (t Tree) Text(w io.Writer, width int) error {
	p := &printer{w: w, width: max(width, narrowest)}
	for _, m := range t.Missing {
		p.line(0, fmt.Sprintf("%s: %s", label(m.Ranks, p.width/2), m.Why))
	}
	if len(t.Missing) > 0 && len(t.Groups) > 0 {
		p.line(0, "")
	}
	for i, g := range t.Groups {
		if i > 0 {
			p.line(0, "")
		}
		title := g.Thread
		if g.Role != "" {
			title = g.Role + ", " + title
		}
		p.line(0, title+", "+label(g.Ranks, p.width/2)+threadCount(g.Ranks, g.Threads))
		p.nodes(g.Nodes, g.Ranks, 1)
	}
	if p.lines > maxLines {
		p.lines = 0
		p.line(0, fmt.Sprintf("only the first %d lines are shown", maxLines))
	}
	return p.err
}

// nodes writes the calls that were made from a node with the given ranks. If the ranks made
// different calls, or some ranks made none, each branch begins with a line that names its ranks.
func (p *printer) nodes(nodes []*Node, ranks fold.Ranks, indent int) {
	for _, n := range nodes {
		if p.err != nil || p.lines > maxLines {
			return
		}
		in := indent
		if len(nodes) > 1 || !slices.Equal(n.Ranks, ranks) {
			p.line(in, label(n.Ranks, p.width/2)+threadCount(n.Ranks, n.Threads))
			in++
		}
		p.line(in, n.describe())
		p.mark(in+1, n.GIL, n.Ranks, "holds the GIL")
		p.mark(in+1, n.Moves, n.Ranks, "its calls change too fast to be read")
		p.nodes(n.Nodes, n.Ranks, in)
	}
}

// threadCount returns the number of threads as a text if a rank has several threads.
func threadCount(ranks fold.Ranks, threads int) string {
	if threads == ranks.Len() {
		return ""
	}
	return fmt.Sprintf(", %d threads", threads)
}

func (n *Node) describe() string {
	stands := n.File == "" && n.Function == leftOut
	switch {
	case n.Wait != "":
		return n.Wait
	case stands && n.Line > 0:
		return fmt.Sprintf("%s %d calls", leftOut, n.Line)
	case stands:
		return leftOut
	case n.Line > 0:
		return fmt.Sprintf("%s  %s:%d", n.Function, shortFile(n.File), n.Line)
	}
	return n.Function + "  " + shortFile(n.File)
}

// mark writes a fact about a node. It names the ranks for which the fact holds, unless these are
// all ranks of the node.
func (p *printer) mark(indent int, some, all fold.Ranks, what string) {
	switch {
	case len(some) == 0:
	case slices.Equal(some, all):
		p.line(indent, "["+what+"]")
	default:
		p.line(indent, "["+label(some, p.width/2)+" "+what+"]")
	}
}

// line writes a line cut to the width.
func (p *printer) line(indent int, text string) {
	if p.lines++; p.err != nil || p.lines > maxLines {
		return
	}
	text = strings.Repeat(" ", min(2*indent, maxIndent)) + visible(text)
	if utf8.RuneCountInString(text) > p.width {
		text = string([]rune(text)[:p.width-1]) + "…"
	}
	_, p.err = fmt.Fprintln(p.w, strings.TrimRight(text, " "))
}

// visible replaces characters that could move a cursor or change the direction of text.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, text)
}
