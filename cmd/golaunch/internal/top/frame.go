package top

import (
	"cmp"
	"fmt"
	"strings"
)

// leastWidth and leastHeight are the size of the smallest screen that can show something.
const leastWidth, leastHeight = 12, 4

// frame returns the screen as text, with as many lines as the screen has rows, and no line wider
// than the screen. It depends on nothing except the screen. If the picture is old, no line stands
// out except the line that reports the age.
func (s *screen) frame() string {
	if s.width < leastWidth || s.height < leastHeight {
		return cut("make it larger", s.width, "")
	}
	l := newLook(s.themes[s.theme], s.ascii)
	if !s.stale() {
		return strings.Join(s.lines(l), "\n")
	}
	lines := s.lines(newLook(Theme{}, s.ascii))
	for i := range lines {
		if i >= 1+s.foot() && i < s.top() {
			lines[i] = l.paint(bad, lines[i])
		} else {
			lines[i] = l.paint(dim, lines[i])
		}
	}
	return strings.Join(lines, "\n")
}

func (s *screen) lines(l *look) []string {
	lines := s.header(l)
	if s.over != noOverlay {
		lines = append(lines, s.overlay(l, s.body())...)
	} else {
		lines = append(lines, s.panes(l)...)
	}
	lines = append(lines[:min(len(lines), s.height-s.foot())], make([]string, max(0, s.height-s.foot()-len(lines)))...)
	if s.foot() > 0 {
		lines = append(lines, s.footer(l))
	}
	return lines
}

// foot and top are the numbers of lines of the footer and the header.
func (s *screen) foot() int { return btoi(s.height >= 8) }

func (s *screen) top() int {
	return 1 + btoi(s.height >= 8) + len(s.trouble(newLook(Theme{}, s.ascii)))
}

// body is the number of lines between header and footer.
func (s *screen) body() int { return s.height - s.top() - s.foot() }

// layout returns the heights of the panes with their titles; 0 for panes that are not shown.
func (s *screen) layout() (heights [panes]int) {
	body, wanted := s.body(), max(s.rows.n, 1)+2
	if s.picture.rows(s.current()) == facts {
		wanted = factLines + 1
	}
	switch {
	case body >= 12 && body < 34:
		most := body * 11 / 20
		if s.focus != tablePane {
			most = body * 2 / 5
		}
		heights[tablePane] = min(wanted, most)
		heights[s.below()] = body - heights[tablePane]
		s.share(&heights)
	case body < 12:
		heights[s.focus] = body
	default:
		return s.tall(wanted)
	}
	return heights
}

// share gives the events the room that the heat map does not need, unless the user chose one of
// these two panes.
func (s *screen) share(heights *[panes]int) {
	const least = 3
	if heat := s.heatLines(); s.lower == tablePane && heights[heatPane]-heat >= least {
		heights[heatPane], heights[eventPane] = heat, heights[heatPane]-heat
	}
}

// heatLines is the number of lines of the heat map, with its title.
func (s *screen) heatLines() int {
	if s.current().rank >= 0 {
		return len(measures) + 1
	}
	if _, some := s.measured(s.heatRanks()); some {
		return len(s.heatRanks()) + 1
	}
	return 1
}

// tall shows all panes. A pane with little to show leaves its room to the others.
func (s *screen) tall(wanted int) (heights [panes]int) {
	body, heat := s.body(), s.heatLines()
	heights[eventPane], heights[logPane] = min(s.eventCount()+1, body/5), 2
	if s.log.name != "" {
		heights[logPane] = body * 3 / 10
	}
	heights[heatPane] = max(2, min(heat, body*3/10))
	heights[tablePane] = min(wanted, body-heights[eventPane]-heights[logPane]-heights[heatPane])
	left := func() int {
		return body - heights[tablePane] - heights[heatPane] - heights[eventPane] - heights[logPane]
	}
	heights[heatPane] += min(left(), max(0, heat-heights[heatPane]))
	heights[eventPane] += min(left(), s.eventCount()+1-heights[eventPane])
	heights[logPane] += left()
	return heights
}

// below is the pane under the table if there is room for no more than one pane: the user's choice,
// or the heat map, or the events while the heat map is empty.
func (s *screen) below() pane {
	if s.lower == tablePane {
		if s.current().attempts {
			return eventPane
		}
		if _, some := s.measured(s.heatRanks()); !some {
			return eventPane
		}
		return heatPane
	}
	return s.lower
}

func (s *screen) panes(l *look) (lines []string) {
	for p, height := range s.layout() {
		if height <= 0 {
			continue
		}
		var name string
		var inner []string
		switch pane(p) {
		case tablePane:
			name, inner = s.table(l, height-1)
		case heatPane:
			name, inner = s.heat(l, height-1)
		case eventPane:
			name, inner = s.events(l, height-1)
		case logPane:
			name, inner = s.logLines(l, height-1)
		}
		lines = append(lines, s.rule(l, name, pane(p) == s.focus))
		lines = append(lines, inner...)
		lines = append(lines, make([]string, max(0, height-1-len(inner)))...)
	}
	return lines
}

// rule is the line above a pane, with its name. The line of the pane with the focus stands out.
func (s *screen) rule(l *look, name string, focus bool) string {
	name = cut(clean(name), s.width-4, l.ellipsis)
	role, mark := dim, l.line
	if focus {
		role, mark = title, ">"
	}
	return l.paint(dim, l.line) + l.paint(role, mark+" "+name+" ") + l.paint(dim, strings.Repeat(l.line, max(0, s.width-4-width(name))))
}

// table has the rows of a place, or the facts of a rank.
func (s *screen) table(l *look, height int) (string, []string) {
	if s.picture.rows(s.current()) == facts {
		return s.facts(l, height)
	}
	g, spot := l.grid(s.rows.columns, s.width), s.spot()
	lines := []string{g.heads()}
	spot.top = window(spot.top, spot.index, height-1, s.rows.n)
	for i := spot.top; i < min(s.rows.n, spot.top+height-1); i++ {
		lines = append(lines, g.line(s.rows.row(i), i == spot.index))
	}
	if s.rows.n == 0 {
		lines = append(lines, l.paint(dim, cut("  "+s.empty(), s.width, l.ellipsis)))
	}
	return fmt.Sprintf("%s %s", s.rows.name, s.extent(spot.top, height-1)), lines
}

// empty says why there are no rows.
func (s *screen) empty() string {
	switch j := s.picture.Job(s.current().job); {
	case s.find != "":
		return "none; press esc to see all"
	case s.fresh.IsZero():
		return "not known yet"
	case s.current().job == "" && s.current().node == "":
		return "none here; golaunch run starts a job"
	case s.current().job != "" && j == nil:
		return "the job is not known here any more; press esc"
	case j != nil && !j.Over():
		return "nothing was measured yet: " + cmp.Or(j.Waits, j.Phase)
	}
	return "none"
}

// extent says which rows are visible: "1-9 of 112".
func (s *screen) extent(top, height int) string {
	if s.rows.n <= height {
		return fmt.Sprint(s.rows.n)
	}
	return fmt.Sprintf("%d-%d of %d, the worst first", top+1, min(s.rows.n, top+height), s.rows.n)
}

// window moves the first visible row as little as needed to make the row at index visible.
func window(top, index, height, n int) int {
	top = min(top, index)
	top = max(top, index-height+1)
	return max(0, min(top, n-height))
}
