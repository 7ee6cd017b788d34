package top

import "strings"

// column is a column of a table. The last has width 0 and takes the remaining room.
type column struct {
	head  string
	width int
	right bool
	// keep orders columns: as the screen gets narrower, the column with the lowest keep is dropped
	// first.
	keep int
}

// row is a line of a table, with a text for each column.
type row struct {
	level Level
	// faint is true for a line that matters less.
	faint bool
	cells []string
}

const (
	// tail is the least room of the last column. goodTail is the room that it gets before columns
	// that are not needed.
	tail, goodTail = 10, 27
	// needed is the least keep of a needed column.
	needed = 6
	// leastName is the least width of the first column.
	leastName = 7
)

// narrow drops columns until the remaining columns fit, and returns the indexes of these.
func narrow(columns []column, room int) (stay []int) {
	for i := range columns {
		stay = append(stay, i)
	}
	for len(stay) > 1 {
		least := 0
		for i, c := range stay {
			if columns[c].keep < columns[stay[least]].keep {
				least = i
			}
		}
		end := tail
		if columns[stay[least]].keep < needed {
			end = goodTail
		}
		if need(columns, stay, end) <= room {
			break
		}
		stay = append(stay[:least], stay[least+1:]...)
	}
	return stay
}

func need(columns []column, stay []int, tail int) int {
	n := len(stay) - 1
	for _, i := range stay {
		n += columns[i].width
		if columns[i].width == 0 {
			n += tail
		}
	}
	return n
}

// widths returns the widths of the columns that stay.
func widths(columns []column, stay []int, room int) (all []int) {
	rest := room - need(columns, stay, 0)
	for _, i := range stay {
		w := columns[i].width
		if w == 0 {
			w = max(rest, 0)
		}
		all = append(all, min(w, room))
	}
	return all
}

// grid is a table for one width.
type grid struct {
	*look
	columns []column
	stay    []int
	widths  []int
	width   int
	// gap is the text between the mark and the first column, if there is room for it.
	gap string
}

// margin precedes each line. It shows whether the line is selected, and its level.
const margin = 2

// grid lays a table out for a width. It shows the names of rows in full unless they would take all
// room.
func (l *look) grid(columns []column, width int) *grid {
	gap := strings.Repeat(" ", btoi(width >= 40))
	room := width - margin - len(gap)
	if first := &columns[0]; first.width > leastName {
		first.width = max(leastName, min(first.width, room*2/5))
	}
	stay := narrow(columns, room)
	return &grid{l, columns, stay, widths(columns, stay, room), width, gap}
}

func (g *grid) heads() string {
	var b strings.Builder
	for i, c := range g.stay {
		b.WriteByte(' ')
		b.WriteString(fit(g.columns[c].head, g.widths[i], g.columns[c].right, g.ellipsis))
	}
	return g.paint(head, cut(g.gap+" "+b.String(), g.width, ""))
}

// line is a row of the table. A selected row is highlighted; in others the mark and the last column
// show the level.
func (g *grid) line(r row, isChosen bool) string {
	mark := g.mark[r.level]
	if isChosen {
		return g.paint(chosen, cut(">"+mark+g.gap+strings.Join(g.cells(r), " "), g.width, ""))
	}
	cells := g.cells(r)
	last := len(cells) - 1
	if g.columns[g.stay[last]].width == 0 && r.level > Fine {
		cells[last] = g.paint(roleOf(r.level), cells[last])
	}
	s := " " + g.paint(roleOf(r.level), mark) + g.gap + strings.Join(cells, " ")
	if r.faint {
		s = g.paint(dim, s)
	}
	return s
}

func (g *grid) cells(r row) (all []string) {
	for i, c := range g.stay {
		text := clean(r.cells[c])
		if c == 0 {
			text = cutMiddle(text, g.widths[i], g.ellipsis)
		}
		all = append(all, fit(text, g.widths[i], g.columns[c].right, g.ellipsis))
	}
	return all
}
