package top

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
)

// Print shows at most mostRanks ranks of a job, and mostNodes nodes.
const mostRanks, mostNodes = 20, 20

// Settled waits until all nodes of a model that is Ready have reported all ranks or have failed to
// report them, or until ctx ends. It does not wait for nodes of finished jobs.
func Settled(ctx context.Context, m *view.Model) {
	for {
		changed := m.Changed()
		if settled(m.State()) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func settled(s *view.State) bool {
	if len(s.Jobs) > 0 && !slices.ContainsFunc(s.Jobs, func(j *view.Job) bool { return j.Phase != "finished" }) {
		return true
	}
	silent := false
	for _, n := range s.Nodes {
		if n.Heard.IsZero() && n.Missing == "" && n.Silent == 0 {
			return false
		}
		silent = silent || n.Heard.IsZero()
	}
	return silent || !slices.ContainsFunc(s.Jobs, func(j *view.Job) bool { return j.Phase == "running" && len(j.Ranks) < j.JobStatus.Ranks })
}

// Print writes a picture as plain text: the jobs, or one job with its worst nodes and ranks. Width
// is in columns; 0 cuts nothing.
func Print(w io.Writer, p *Picture, job string, width int) error {
	const unlimited = 1000
	cutting := width > 0
	if !cutting {
		width = unlimited
	}
	themes := Themes()
	s := newScreen(place{job: job, rank: noRank}, themes[len(themes)-1:])
	s.zone, s.width, s.clock, s.ascii = time.Local, width, p.State.At, !cutting
	s.show(p)
	var b strings.Builder
	for _, line := range s.once(job, newLook(Theme{}, s.ascii)) {
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s *screen) once(job string, l *look) []string {
	lines := append([]string{l.pieces(s.summary(), s.width)}, s.trouble(l)...)
	if job == "" {
		lines = append(append(lines, ""), s.whole(l, everything, s.rows.n)...)
		return append(lines, s.silentNodes(l)...)
	}
	j := s.picture.Job(job)
	if j == nil {
		return lines
	}
	if len(j.Nodes) > 1 {
		lines = append(append(lines, ""), s.whole(l, place{job: job, rank: noRank}, mostNodes)...)
	}
	if len(j.Ranks) > 0 {
		lines = append(append(lines, ""), s.whole(l, place{job: job, rank: noRank, other: true}, mostRanks)...)
	}
	return lines
}

// whole returns the table of a place with its first rows. most bounds the number of rows.
func (s *screen) whole(l *look, at place, most int) []string {
	list := s.picture.list(at, "")
	g := l.grid(list.columns, s.width)
	lines := []string{g.heads()}
	for i := range min(list.n, most) {
		lines = append(lines, g.line(list.row(i), false))
	}
	if more := list.n - most; more > 0 {
		lines = append(lines, fmt.Sprintf("   and %d more %s, none of them worse", more, list.name))
	}
	return lines
}

// silentNodes lists the nodes that do not answer, of all jobs.
func (s *screen) silentNodes(l *look) (lines []string) {
	for _, n := range s.picture.Nodes {
		if n.Silent > 0 {
			lines = append(lines, l.mark[Bad]+" node "+clean(n.Name)+" is "+clean(n.Why))
		}
	}
	if len(lines) > 0 {
		lines = append([]string{""}, lines...)
	}
	return lines
}
