package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/tools/bench/record"
)

// never says why a peer has no series of a work, if the reason does not depend on the installed
// programs.
var never = map[string]map[string]string{
	"restart-8":       {record.Mpirun: noRestart, record.Srun: noRestart, record.Ray: aCluster},
	"restart-nodes-8": {record.Mpirun: noRestart, record.Srun: noRestart, record.Ray: aCluster},
	"ddp-restart":     {record.Mpirun: noRestart, record.Srun: noRestart},
	"cluster-start":   {record.Mpirun: noCluster, record.Torchrun: noCluster},
	"cluster-submit":  {record.Mpirun: noCluster, record.Torchrun: noCluster},
	"launch-1":        {record.Ray: aCluster}, "launch-8": {record.Ray: aCluster}, "launcher-memory": {record.Ray: aCluster},
}

const (
	noRestart = "does not restart"
	noCluster = "has no cluster"
	aCluster  = "is a cluster, below"
)

// parts returns the texts between marks, by their names.
func parts(rec *record.Record) map[string]string {
	all := map[string]string{"facts": facts(rec), "commands": commands(rec), "short": short(rec), "preload": preload(rec)}
	for _, g := range record.Groups {
		all[g.ID] = "**" + g.Title + "**\n\n" + picture(rec, g) + table(rec, g)
	}
	return all
}

// wide is the largest number of works that are columns of a table. If there are more, they are
// rows.
const wide = 4

// table has a row for each peer of a group and a column for each work, or the other way round.
func table(rec *record.Record, g record.Group) string {
	heads := []string{""}
	if len(g.Works) > wide {
		var rows [][]string
		for _, w := range g.Works {
			row := []string{w.Label}
			for _, peer := range g.Peers {
				row = append(row, cell(rec, w.ID, peer, g.Unit, true))
			}
			rows = append(rows, row)
		}
		return markdown(append(heads, g.Peers...), rows)
	}
	for _, w := range g.Works {
		heads = append(heads, w.Label)
	}
	var rows [][]string
	for _, peer := range g.Peers {
		row := []string{peer}
		for _, w := range g.Works {
			row = append(row, cell(rec, w.ID, peer, g.Unit, true))
		}
		rows = append(rows, row)
	}
	return markdown(heads, rows)
}

func markdown(heads []string, rows [][]string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "| %s |\n|%s\n", strings.Join(heads, " | "), strings.Repeat(" --- |", len(heads)))
	for _, row := range rows {
		fmt.Fprintf(&text, "| %s |\n", strings.Join(row, " | "))
	}
	return text.String()
}

// cell returns the median of a work of a peer, and on request its spread and the number of runs.
// Without a median it says why.
func cell(rec *record.Record, work, peer string, unit record.Unit, spread bool) string {
	s := rec.Of(work, peer)
	switch {
	case s == nil && never[work][peer] != "":
		return never[work][peer]
	case s == nil:
		return "not measured"
	case len(s.Samples) == 0:
		return fmt.Sprintf("failed, %d of %d", s.Failed, s.Failed)
	case unit == record.Share:
		return share(s.Samples)
	}
	lowest, median, highest := record.Spread(s.Samples)
	text := say(median, unit)
	if unit == record.Processes && lowest == highest {
		return text
	}
	if !spread {
		return text
	}
	text += fmt.Sprintf(" (%s; %d)", span(lowest, highest, unit), len(s.Samples))
	if s.Failed > 0 {
		text += fmt.Sprintf(", %d failed", s.Failed)
	}
	return text
}

// span returns the range of values, with their unit once if it is the same.
func span(lowest, highest float64, unit record.Unit) string {
	from, to := say(lowest, unit), say(highest, unit)
	if from == to {
		return to
	}
	number, name, _ := strings.Cut(from, " ")
	if strings.HasSuffix(to, " "+name) {
		from = number
	}
	return from + " to " + to
}

func share(samples []float64) string {
	sum := 0.0
	for _, s := range samples {
		sum += s
	}
	return fmt.Sprintf("%.0f of %d", sum, len(samples))
}

// short returns the table for readers in a hurry: medians of all peers.
func short(rec *record.Record) string {
	peers := []string{record.Golaunch, record.Mpirun, record.Srun, record.Torchrun, record.Ray}
	var rows [][]string
	for _, line := range []struct {
		work, label string
		unit        record.Unit
	}{
		{"launch-1", "launch and end of 1 rank", record.Milliseconds},
		{"launch-8", "launch and end of 8 ranks", record.Milliseconds},
		{"restart-8", "death of one of 8 ranks to the start of the last new one", record.Milliseconds},
		{"restart-nodes-8", "the same over 4 nodes", record.Milliseconds},
		{"ddp-start", "command to the first step of 4 ranks of DistributedDataParallel", record.Milliseconds},
		{"ddp-restart", "death of one of them to the first step after it", record.Milliseconds},
		{"cluster-start", "a cluster of one node, from nothing", record.Milliseconds},
		{"cluster-submit", "`true` on that cluster, whole command", record.Milliseconds},
		{"launcher-memory", "memory of the launcher of 8 ranks", record.Bytes},
		{"orphans-kill", "of 32 processes, left 10 s after `kill -9` of the launcher", record.Processes},
	} {
		row := []string{line.label}
		for _, peer := range peers {
			row = append(row, cell(rec, line.work, peer, line.unit, false))
		}
		if auto := rec.Of(line.work, record.GolaunchAuto); auto != nil && len(auto.Samples) > 0 {
			row[1] += "; with `--preload auto` " + cell(rec, line.work, record.GolaunchAuto, line.unit, false)
		}
		rows = append(rows, row)
	}
	text := markdown(append([]string{""}, peers...), rows)
	if s := rec.Of("hangs-32", record.Golaunch); s != nil {
		text += "\nLaunches of 32 ranks, which exit at once, that did not finish in time: golaunch " + share(s.Samples)
		if m := rec.Of("hangs-32", record.Mpirun); m != nil {
			text += ", mpirun " + share(m.Samples)
		}
		text += ".\n"
	}
	return text + "\n" + circumstances(rec)
}

// preload shows the effect of a fork server.
func preload(rec *record.Record) string {
	var rows [][]string
	for _, peer := range []string{record.Golaunch, record.GolaunchTorch, record.GolaunchAuto, record.Torchrun} {
		rows = append(rows, []string{
			peer, cell(rec, "ddp-start", peer, record.Milliseconds, true), cell(rec, "ddp-restart", peer, record.Milliseconds, true),
			cell(rec, "ddp-memory", peer, record.Bytes, true),
		})
	}
	heads := []string{"", "command to the end of the first step", "death of a rank to the first step of the next attempt", "proportional memory of the 4 ranks"}
	return markdown(heads, rows)
}

// facts names the place, the time and the programs of the measurements.
func facts(rec *record.Record) string {
	m := rec.Machine
	var rows [][]string
	add := func(name, value string) { rows = append(rows, []string{name, value}) }
	add("when", rec.Began.Format("2006-01-02 15:04 MST")+fmt.Sprintf(", %.0f minutes in all", rec.TookSeconds/60))
	add("machine", fmt.Sprintf("%s, %d cores, %s of memory, %s, %s", m.CPU, m.Cores, say(float64(m.MemoryBytes), record.Bytes), m.Kernel, m.OS))
	add("load average before the run", fmt.Sprintf("%.2f", m.Load))
	add("time that the hypervisor gave to others", fmt.Sprintf("%.1f %%", 100*m.Stolen))
	for _, p := range rec.Peers {
		add(p.Name, p.Version)
	}
	for _, s := range rec.Skipped {
		name := "not compared: " + s.Peer
		if s.Works != "" {
			name += " (" + s.Works + ")"
		}
		add(name, cut(s.Reason))
	}
	for _, s := range rec.Sections {
		text := fmt.Sprint(s.Rounds)
		if !s.Renewed.IsZero() {
			text += s.Renewed.Format(", later: 2006-01-02 15:04 MST")
		}
		add("rounds of "+s.Name, text)
	}
	return markdown([]string{"", ""}, rows) + "\n" + circumstances(rec)
}

// circumstances says how reliable the figures are.
func circumstances(rec *record.Record) string {
	m := rec.Machine
	text := fmt.Sprintf("Measured on %s on %d cores. ", rec.Began.Format("2006-01-02"), m.Cores)
	if m.Load > 0.25*float64(m.Cores) || m.Stolen > 0.02 {
		return text + fmt.Sprintf("Other work ran on the machine (load average %.1f before the run): the figures are higher and vary more than on a quiet "+
			"one. All launchers were measured in turn, so that it hit all of them.\n", m.Load)
	}
	return text + fmt.Sprintf("The machine was otherwise quiet (load average %.2f before the run).\n", m.Load)
}

// cut bounds the text of a failure.
func cut(text string) string {
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "|", "/")), " ")
	if runes := []rune(text); len(runes) > 200 {
		return string(runes[:200]) + "..."
	}
	return text
}

var number = regexp.MustCompile(`[0-9]+`)

// commands lists the commands that were run, and the failures. Commands that differ only in a
// number are listed once.
func commands(rec *record.Record) string {
	var rows, wrong [][]string
	var seen []string
	for _, g := range record.Groups {
		for _, w := range g.Works {
			for _, peer := range g.Peers {
				s := rec.Of(w.ID, peer)
				if s == nil {
					continue
				}
				if s.Failed > 0 {
					wrong = append(wrong, []string{w.ID, peer, fmt.Sprintf("%d of %d", s.Failed, s.Failed+len(s.Samples)), cut(s.Failure)})
				}
				if same := peer + number.ReplaceAllString(s.Command, "N"); !slices.Contains(seen, same) {
					seen = append(seen, same)
					rows = append(rows, []string{w.ID, peer, "`" + s.Command + "`"})
				}
			}
		}
	}
	text := markdown([]string{"work", "launcher", "command"}, rows)
	if len(wrong) > 0 {
		text += "\nRuns that failed, and what the first of them said:\n\n" + markdown([]string{"work", "launcher", "failed", "said"}, wrong)
	}
	return text
}
