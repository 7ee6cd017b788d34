package top

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/units"
	"github.com/golaunch/golaunch/launcher/report"
)

// factLines is the number of facts about a rank.
const factLines = 7

// facts lists the facts about a rank.
func (s *screen) facts(l *look, height int) (string, []string) {
	at := s.current()
	r := s.picture.rank(at.job, at.rank)
	if r == nil {
		return "facts", []string{l.paint(dim, cut("  nothing is known of this rank any more; press esc", s.width, l.ellipsis))}
	}
	var lines []string
	for _, f := range factsOf(r) {
		lines = append(lines, l.paint(dim, fit(f[0], 10, false, ""))+cut(clean(f[1]), s.width-10, l.ellipsis))
	}
	return fmt.Sprint("facts of rank ", r.Rank.Rank), lines[:min(len(lines), height)]
}

func factsOf(r *Rank) [][2]string {
	u, step := &r.Now, units.Whole(r.Now.Step)
	if u.Total > 0 {
		step += " of " + units.Whole(u.Total)
	}
	return [][2]string{
		{"is", cmp.Or(r.Ended(), r.Does, "running")},
		{"runs on", fmt.Sprintf("%s, local rank %d, PID %s, attempt %d", r.Node, r.LocalRank, pid(r.PID), r.Attempt)},
		{"step", fmt.Sprintf("%s, %s each, the last %s ago", step, units.StepSeconds(u.StepTime), units.Age(u.BeatAge))},
		{"output", outputOf(r)},
		{"GPU", gpuOf(r)},
		{"processes", fmt.Sprintf("%s, %s CPUs, memory %s, read and written %s/s", units.Whole(u.Processes), units.Tenths(u.CPUs), units.Size(u.Memory), units.Size(u.IO))},
		{"faults", units.Whole(u.Faults) + " pages of memory touched for the first time each second"},
	}
}

// outputOf describes a rank's output. A rank without output has been silent since its start.
func outputOf(r *Rank) string {
	u := &r.Now
	if u.LogBytes == 0 {
		return "none yet"
	}
	return fmt.Sprintf("%s lines, %s, the last %s ago", units.Whole(u.Lines), units.Size(u.LogBytes), units.Age(u.SilenceAge))
}

func gpuOf(r *Rank) string {
	u := &r.Now
	if r.GPU == "" {
		return "none"
	}
	return fmt.Sprintf("%s: busy %s, %s of %s, memory %s of %s, %s degrees, %s Xid errors", r.GPU, units.Percent(u.GPUUse), units.Watts(u.GPUPower),
		units.Watts(u.GPUPowerLimit), units.Size(u.GPUMemory), units.Size(u.GPUMemoryTotal), units.Whole(u.GPUTemperature), units.Whole(u.Xids))
}

func (s *screen) eventCount() int { return max(1, len(s.moments())) }

// moments returns the decisions about the shown or selected job, or about one attempt of that job.
func (s *screen) moments() []report.Moment {
	j, attempt := s.job(), s.chosen().attempt-1
	switch {
	case j == nil:
		return nil
	case attempt < 0:
		return j.History
	}
	return slices.DeleteFunc(slices.Clone(j.History), func(m report.Moment) bool { return m.Attempt != attempt })
}

// events lists the decisions about the shown or selected job, the newest last.
func (s *screen) events(l *look, height int) (string, []string) {
	all := s.moments()
	if len(all) == 0 {
		return "events", []string{l.paint(dim, cut("  none are known", s.width, l.ellipsis))}
	}
	s.eventsUp = max(0, min(s.eventsUp, len(all)-height))
	end := len(all) - s.eventsUp
	var lines []string
	for _, m := range all[max(0, end-height):end] {
		lines = append(lines, s.event(l, m))
	}
	name := s.job().ID
	if attempt := s.chosen().attempt - 1; attempt >= 0 {
		name += fmt.Sprint(", attempt ", attempt)
	}
	return fmt.Sprintf("events of %s: %d", name, len(all)), lines
}

func (s *screen) event(l *look, m report.Moment) string {
	attempt := units.Unknown
	if m.Attempt >= 0 {
		attempt = fmt.Sprint("#", m.Attempt)
	}
	what := fit(clean(cmp.Or(m.To, "")), 9, false, l.ellipsis)
	why := clean(m.Reason)
	if m.Cause != "" {
		why = clean(m.Cause) + ": " + why
	}
	line := []piece{{m.At.In(s.zone).Format(time.TimeOnly), dim, 2}, {fit(attempt, 3, false, ""), dim, 1}, {what, momentRole(m), 3}}
	if s.width < 60 {
		line = line[:1]
	}
	used := piecesWidth(line) + 2
	role := text
	if m.Cause != "" {
		role = bad
	}
	return l.pieces(line, s.width) + "  " + l.paint(role, cut(why, s.width-used, l.ellipsis))
}

func momentRole(m report.Moment) role {
	switch m.To {
	case "training":
		return good
	case "stopping", "backoff":
		return bad
	}
	return note
}
