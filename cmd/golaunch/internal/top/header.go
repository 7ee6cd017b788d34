package top

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/alert"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/units"
	"github.com/golaunch/golaunch/launcher/report"
)

// piece is a part of a line. As the line gets narrower, the piece with the lowest keep is dropped
// first.
type piece struct {
	text string
	role role
	keep int
}

// pieces joins the pieces that fit.
func (l *look) pieces(all []piece, width int) string {
	for len(all) > 1 && piecesWidth(all) > width {
		least := 0
		for i, p := range all {
			if p.keep < all[least].keep {
				least = i
			}
		}
		all = append(all[:least:least], all[least+1:]...)
	}
	var b strings.Builder
	for i, p := range all {
		if i > 0 {
			b.WriteString("  ")
		}
		b.WriteString(l.paint(p.role, cut(p.text, width, l.ellipsis)))
	}
	return b.String()
}

func piecesWidth(all []piece) int {
	n := 2 * (len(all) - 1)
	for _, p := range all {
		n += width(p.text)
	}
	return n
}

// header shows the place, its progress, and its problems.
func (s *screen) header(l *look) []string {
	lines := []string{s.crumbs(l)}
	if s.height >= 8 {
		lines = append(lines, l.pieces(s.summary(), s.width))
	}
	return append(lines, s.trouble(l)...)
}

// crumbs is the path from all jobs to the shown place, with the time on the right.
func (s *screen) crumbs(l *look) string {
	at := s.current()
	way := "golaunch top"
	if at.job != "" {
		way += " > " + clean(at.job)
	}
	switch j := s.picture.Job(at.job); {
	case at.attempts:
		way += " > attempts"
	case j != nil && (j.JobStatus.Ranks > 0 || j.Over()):
		way += fmt.Sprint(" > attempt ", j.Attempt)
	}
	if at.node != "" {
		way += " > " + clean(at.node)
	}
	if at.rank >= 0 {
		way += fmt.Sprint(" > rank ", at.rank)
	}
	right := s.clock.In(s.zone).Format(time.TimeOnly)
	if from := clean(s.picture.State.Source) + "  "; width(way)+width(from)+len(right)+2 <= s.width {
		right = from + right
	}
	if width(way)+width(right)+2 > s.width {
		right = ""
	}
	way = cut(way, s.width, l.ellipsis)
	return l.paint(title, way) + strings.Repeat(" ", max(0, s.width-width(way)-width(right))) + l.paint(dim, right)
}

// summary is the second line: a job's progress, or the numbers of jobs and nodes.
func (s *screen) summary() []piece {
	if j := s.picture.Job(s.current().job); j != nil {
		return s.jobSummary(j)
	}
	return s.clusterSummary()
}

func (s *screen) clusterSummary() []piece {
	p := s.picture
	gpus, silent, run, wait, over := 0, 0, 0, 0, 0
	for _, n := range p.Nodes {
		gpus, silent = gpus+len(n.GPUs), silent+btoi(n.Silent > 0)
	}
	for _, j := range p.Jobs {
		run, over = run+btoi(j.Phase == "running"), over+btoi(j.Over())
	}
	wait = len(p.Jobs) - run - over
	all := []piece{{units.Plural(run, "job") + " running", text, 9}}
	add := func(n int, what string, role role, keep int) {
		if n > 0 {
			all = append(all, piece{what, role, keep})
		}
	}
	add(wait, units.Plural(wait, "job")+" waiting", text, 8)
	add(over, fmt.Sprint(over, " over"), dim, 4)
	add(len(p.Nodes), units.Plural(len(p.Nodes), "node"), text, 7)
	add(silent, fmt.Sprint(silent, " silent"), bad, 10)
	add(gpus, units.Plural(gpus, "GPU"), text, 5)
	n := len(p.State.Coordinators)
	add(n, fmt.Sprintf("%d of %s answer", n-len(p.State.Silent), units.Plural(n, "coordinator")), dim, 3)
	return append(all, piece{clean(p.State.Version), dim, 1})
}

func (s *screen) jobSummary(j *Job) []piece {
	all := []piece{{clean(j.State()), stateRole(j), 10}}
	if j.Phase == "running" {
		all = append(all, s.progress(j)...)
	}
	if j.Restarts > 0 {
		all = append(all, piece{fmt.Sprintf("restart %d of %d", j.Restarts, j.MaxRestarts), text, 4})
	}
	if j.JobStatus.Ranks > 0 {
		all = append(all, piece{units.Plural(j.JobStatus.Ranks, "rank"), text, 3}, piece{units.Plural(len(j.JobStatus.Nodes), "node"), text, 2})
	}
	if j.Goodput != nil {
		all = append(all, piece{"goodput " + goodput(j.Goodput), text, 3})
	}
	if s := j.Saves; s != nil && j.Phase == "running" {
		all = append(all, piece{saved(s), text, 4})
	}
	return all
}

// saved shows the age of the last checkpoint, and whether a checkpoint is being written.
func saved(s *report.Saves) string {
	switch {
	case s.InFlight != nil:
		return "saving"
	case s.AtRisk < 1:
		return "saved"
	}
	return "saved " + units.Age(s.AtRisk) + " ago"
}

func stateRole(j *Job) role {
	switch {
	case j.Level == Bad:
		return bad
	case j.State() == "training" || j.Phase == "finished" && j.Level == Fine:
		return good
	}
	return note
}

// progress shows whether a job makes progress: the step, the pace, and the age of the newest
// heartbeat.
func (s *screen) progress(j *Job) []piece {
	if !units.Known(j.Progress.Step) {
		all := []piece{{"no heartbeats", dim, 2}}
		if quiet := j.Norms.SilenceAge; units.Known(quiet) {
			all = append(all, piece{"output " + units.Age(quiet) + " ago", text, 6})
		}
		return all
	}
	steps := "step " + units.Whole(j.Progress.Step)
	if j.Progress.Total > 0 {
		steps += "/" + units.Whole(j.Progress.Total) + " " + units.Percent(j.Progress.Step/j.Progress.Total)
	}
	all := []piece{{steps, text, 9}}
	if units.Known(j.Progress.StepTime) {
		all = append(all, piece{units.StepSeconds(j.Progress.StepTime) + "/step", text, 7})
	}
	if left := j.Left(s.picture.State.At); units.Known(left) {
		all = append(all, piece{units.Age(left) + " left", text, 8})
	}
	if beat := j.Norms.BeatAge; units.Known(beat) {
		all = append(all, piece{"beat " + units.Age(beat) + " ago", beatRole(j), 6})
	}
	return all
}

func beatRole(j *Job) role {
	switch late := j.Norms.BeatAge; {
	case late >= j.Norms.Late():
		return bad
	case late >= max(alert.FreshBeat.Seconds(), j.Norms.Steps(3)):
		return warn
	}
	return good
}

// trouble describes the problem of the picture, of the shown place, or of its worst row. It takes
// two lines if there is room.
func (s *screen) trouble(l *look) []string {
	level, why := s.complaint()
	lines := wrap(clean(why), s.width-2, 1+btoi(s.height >= 20), l.ellipsis)
	for i := range lines {
		mark := " "
		if i == 0 {
			mark = l.mark[level]
		}
		lines[i] = l.paint(roleOf(level), cut(mark+" "+lines[i], s.width, ""))
	}
	return lines
}

func (s *screen) complaint() (Level, string) {
	if !s.stale() {
		if level, why := s.worst(); why != "" {
			return level, why
		}
		return Fine, "no trouble is seen"
	}
	why := cmp.Or(s.picture.State.Trouble, "the coordinator does not answer, and is asked again")
	if s.fresh.IsZero() {
		return Bad, "nothing is known yet: " + why
	}
	return Bad, "the picture is " + units.Span(s.clock.Sub(s.fresh)) + " old: " + why
}

// worst is the worst alert of the shown place.
func (s *screen) worst() (Level, string) {
	p, at := s.picture, s.current()
	switch r, j, n := p.rank(at.job, at.rank), p.Job(at.job), p.Node(at.node); {
	case r != nil:
		return r.Level, r.Why
	case n != nil:
		return n.Level, n.Why
	case j != nil:
		return j.Level, j.Why
	case at.other && len(p.Nodes) > 0 && p.Nodes[0].Level > Fine:
		return p.Nodes[0].Level, p.Nodes[0].Name + ": " + p.Nodes[0].Why
	case len(p.Jobs) > 0 && p.Jobs[0].Level > Fine:
		return p.Jobs[0].Level, p.Jobs[0].ID + ": " + p.Jobs[0].Why
	}
	return Fine, ""
}

// footer shows the filter while the user types it, and otherwise the keys.
func (s *screen) footer(l *look) string {
	if s.typing {
		return l.paint(title, cut("/"+clean(s.find)+"_", s.width, l.ellipsis)) + l.paint(dim, cut("  enter: keep, esc: none", max(0, s.width-width(s.find)-4), ""))
	}
	keys := []piece{{"q quit", dim, 8}, {"? help", dim, 9}}
	if s.focus == tablePane {
		keys = append(keys, piece{"enter into", dim, 7})
	}
	if len(s.trail) > 1 || s.focus != tablePane {
		keys = append(keys, piece{"esc back", dim, 7})
	}
	if other := s.others(); other != "" {
		keys = append(keys, piece{"n " + other, dim, 4})
	}
	if s.job() != nil && !s.current().attempts {
		keys = append(keys, piece{"a attempts", dim, 2})
	}
	return l.pieces(append(keys, piece{"tab pane", dim, 5}, piece{"/ filter", dim, 4}, piece{"l log", dim, 6}, piece{"s stacks", dim, 3},
		piece{"d probe", dim, 2}, piece{"m measure", dim, 3}, piece{"t theme", dim, 1}), s.width)
}

// others names the rows that the key n shows; empty if it shows none.
func (s *screen) others() string {
	at := s.current()
	now := s.picture.rows(at)
	at.other = !at.other
	then := s.picture.rows(at)
	if then == now {
		return ""
	}
	return [...]string{"jobs", "nodes", "ranks", "attempts", "facts"}[then]
}
