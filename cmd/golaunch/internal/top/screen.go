package top

import (
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
)

// pane is a part of the screen.
type pane int

const (
	tablePane pane = iota
	heatPane
	eventPane
	logPane
	panes
)

// overlay is a text over the panes.
type overlay int

const (
	noOverlay overlay = iota
	helpOverlay
	probeOverlay
	stackOverlay
)

// spot is a place and the row that is chosen there.
type spot struct {
	at place
	// chosen is the selected row once the user has moved; before that, the worst row is selected.
	chosen place
	moved  bool
	index  int
	top    int
}

// screen is everything that a frame depends on. press and show change it; frame reads it.
type screen struct {
	picture *Picture
	// clock is the present time, and fresh is when the picture was last up to date.
	clock, fresh time.Time
	// trail holds the spots from the first to the shown one.
	trail []spot
	rows  list
	display
	selection
	overlays
	log *tailing
	// logTop is the number of the first line that is shown; if negative, the newest lines are
	// shown.
	logTop int
}

// display is how the terminal shows a screen.
type display struct {
	width, height int
	ascii         bool
	themes        []Theme
	theme         int
	zone          *time.Location
}

// selection has the user's choices by keys.
type selection struct {
	// focus is the pane that gets the keys. lower is the pane that the user wants below the table;
	// tablePane for no choice.
	focus, lower               pane
	find                       string
	typing                     bool
	measure, heatTop, eventsUp int
}

// overlays are the texts over the panes, and the open one.
type overlays struct {
	over    overlay
	overTop int
	probe   probe
	stacks  stacks
}

func newScreen(start place, themes []Theme) *screen {
	return &screen{
		trail: []spot{{at: start}}, display: display{width: 80, height: 24, themes: themes, zone: time.Local}, logTop: -1,
		picture: NewPicture(&view.State{}), log: &tailing{},
	}
}

// staleAfter is how long a picture counts as current.
const staleAfter = 4 * time.Second

// stale reports whether the picture is old because its source does not answer.
func (s *screen) stale() bool {
	return s.picture.State.Trouble != "" || s.clock.Sub(s.fresh) > staleAfter
}

// show takes a new picture. The selection stays.
func (s *screen) show(p *Picture) {
	s.picture = p
	if p.State.Trouble == "" {
		s.fresh = p.State.At
	}
	s.settle()
}

func (s *screen) spot() *spot { return &s.trail[len(s.trail)-1] }

// current is the place that is shown.
func (s *screen) current() place { return s.spot().at }

// settle rebuilds the list and finds the selected row in it.
func (s *screen) settle() {
	spot := s.spot()
	s.rows = s.picture.list(spot.at, s.find)
	if !spot.moved {
		spot.index = 0
	} else {
		spot.index = s.rows.find(spot.chosen, spot.index)
	}
}

// chosen is the place of the selected row; without rows, the place that is shown.
func (s *screen) chosen() place {
	if i := s.spot().index; i < s.rows.n {
		return s.rows.at(i)
	}
	return s.current()
}

// job is the shown or selected job; nil if there is none.
func (s *screen) job() *Job { return s.picture.Job(s.chosen().job) }

// enter opens the selected row.
func (s *screen) enter() {
	to := s.chosen()
	switch j := s.job(); {
	case s.rows.n == 0:
	case to.attempt == 0:
		s.open(to)
	case j != nil && j.Attempt == to.attempt-1: // the newest attempt leads to the job's nodes
		s.trail = s.trail[:len(s.trail)-1]
		if to = (place{job: j.ID, rank: noRank}); s.current() != to {
			s.open(to)
		}
		s.settle()
	default: // of an earlier attempt only events and logs are left
		s.focus, s.lower = eventPane, eventPane
	}
}

// attempts shows the attempts of the job that is shown or selected.
func (s *screen) attempts() {
	if j := s.job(); j != nil && !s.current().attempts {
		s.open(place{job: j.ID, rank: noRank, attempts: true})
	}
}

// open shows a place.
func (s *screen) open(to place) {
	s.trail = append(s.trail, spot{at: to})
	s.find, s.heatTop, s.eventsUp, s.focus = "", 0, 0, tablePane
	s.settle()
}

// back returns to the previous place.
func (s *screen) back() {
	switch {
	case s.find != "":
		s.find = ""
	case s.focus != tablePane:
		s.focus = tablePane
	case len(s.trail) > 1:
		s.trail = s.trail[:len(s.trail)-1]
		s.heatTop, s.eventsUp = 0, 0
	}
	s.settle()
}

// toggleRows shows the other kind of rows: nodes or jobs, nodes or ranks.
func (s *screen) toggleRows() {
	at := s.current()
	if at.node != "" || at.rank >= 0 || at.attempts {
		return
	}
	at.other = !at.other
	s.trail[len(s.trail)-1] = spot{at: at}
	s.settle()
}

// move selects a row further down by the given number of rows, or further up if by is negative.
func (s *screen) move(by int) {
	spot := s.spot()
	if s.rows.n == 0 {
		return
	}
	spot.index = min(max(spot.index+by, 0), s.rows.n-1)
	spot.moved, spot.chosen = spot.index > 0, s.rows.at(spot.index)
}

// scroll moves in the pane with the focus.
func (s *screen) scroll(by int) {
	switch {
	case s.over != noOverlay:
		s.overTop = max(0, s.overTop+by)
	case s.focus == heatPane:
		s.heatTop = max(0, s.heatTop+by)
	case s.focus == eventPane:
		s.eventsUp = max(0, s.eventsUp-by)
	case s.focus == logPane:
		s.scrollLog(by)
	default:
		s.move(by)
	}
}

// scrollLog scrolls the log. The shown lines then stay while new lines arrive; at the end of the
// log, the pane follows the new lines again.
func (s *screen) scrollLog(by int) {
	first, end := s.log.first, s.log.first+len(s.log.lines)
	page := s.page() - 1
	if s.logTop < 0 {
		s.logTop = end - page
	}
	if s.logTop = max(first, s.logTop+by); s.logTop+page >= end {
		s.logTop = -1
	}
}

// page is how many rows of the pane with the focus are visible.
func (s *screen) page() int {
	if s.over != noOverlay {
		return max(1, s.body()-1)
	}
	heights := s.layout()
	if s.focus == tablePane {
		return max(1, heights[tablePane]-2)
	}
	return max(1, heights[s.focus]-1)
}
