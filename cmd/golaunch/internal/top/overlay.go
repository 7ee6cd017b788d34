package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/units"
	"github.com/golaunch/golaunch/launcher"
)

// probe holds the answer times of the nodes that have answered.
type probe struct {
	name  string
	pongs []launcher.Pong
	done  bool
	err   string
}

// stacks are the stacks of a job as text.
type stacks struct {
	name, text, err string
	done            bool
}

// keyHelp has the keys and their effects.
var keyHelp = [][2]string{
	{"j k, arrows", "a row down, up"},
	{"g G", "the first, the last"},
	{"PgDn PgUp, ^d ^u", "a page, half a page"},
	{"Tab", "the next pane"},
	{"Enter", "into a job, a node, a rank"},
	{"Esc, Backspace", "back"},
	{"n", "nodes, or jobs or ranks"},
	{"/", "filter the rows"},
	{"a", "attempts of the job"},
	{"l", "log of the chosen"},
	{"s", "stacks of its job"},
	{"d", "probe the nodes"},
	{"m", "the heat map's measure"},
	{"t", "next theme"},
	{"^z", "suspend"},
	{"q, ^c", "quit"},
}

// help is the text below the keys.
const help = `%s stands still or has failed   %s costs time   %s to know of
The worst is first: what ended badly, is silent, has no heartbeat, lags behind, is slow.
The heat map has a line for each rank, and the newest on the right: %s is low, %s is high, and nothing is not known.
Steps are known of programs that write heartbeats: docs/failures.md says how.`

// overlay is a text over the panes.
func (s *screen) overlay(l *look, height int) []string {
	name, lines := "help", []string(nil)
	switch s.over {
	case probeOverlay:
		name, lines = s.probe.name, s.probe.lines()
	case stackOverlay:
		name, lines = s.stacks.name, s.stacks.lines()
	default:
		lines = helpLines(l, s.width)
	}
	s.overTop = max(0, min(s.overTop, len(lines)-height+1))
	out := []string{s.rule(l, name, true)}
	for _, line := range lines[s.overTop:min(len(lines), s.overTop+height-1)] {
		out = append(out, cut(line, s.width, l.ellipsis))
	}
	return out
}

// helpLines lists the keys in two columns if there is room, otherwise in one.
func helpLines(l *look, width int) (lines []string) {
	const keys, column = 18, 46
	for i := 0; i < len(keyHelp); i += 2 {
		left, right := fit(keyHelp[i][0], keys, false, "")+keyHelp[i][1], fit(keyHelp[i+1][0], keys-3, false, "")+keyHelp[i+1][1]
		if width >= 2*column-12 {
			lines = append(lines, fit(left, column, false, "")+right)
		} else {
			lines = append(lines, wrap(left, width, 2, "")...)
			lines = append(lines, wrap(right, width, 2, "")...)
		}
	}
	lines = append(lines, "")
	for line := range strings.SplitSeq(fmt.Sprintf(help, l.mark[Bad], l.mark[Warn], l.mark[Note], l.heat[0], l.heat[heats-1]), "\n") {
		lines = append(lines, wrap(line, width, 10, l.ellipsis)...)
	}
	return lines
}

// lines lists the nodes, the slowest first.
func (p *probe) lines() []string {
	if p.err != "" {
		return []string{"the nodes cannot be asked: " + clean(p.err)}
	}
	slices.SortStableFunc(p.pongs, func(a, b launcher.Pong) int {
		return cmp.Or(cmp.Compare(btoi(b.Missing != ""), btoi(a.Missing != "")), cmp.Compare(b.After, a.After))
	})
	lines := []string{p.summary()}
	for _, pong := range p.pongs {
		what := pong.After.Round(10 * time.Microsecond).String()
		if pong.Missing != "" {
			what = clean(pong.Missing)
		}
		lines = append(lines, fit(clean(pong.Node), longest, false, "~")+" "+what)
	}
	return lines
}

func (p *probe) summary() string {
	missing, times := 0, []float64(nil)
	for _, pong := range p.pongs {
		if pong.Missing != "" {
			missing++
		} else {
			times = append(times, pong.After.Seconds())
		}
	}
	state := "; waiting for others"
	if p.done {
		state = ""
	}
	if len(times) == 0 {
		return fmt.Sprintf("%s have answered%s", units.Plural(0, "node"), state)
	}
	slices.Sort(times)
	middle := time.Duration(times[len(times)/2] * float64(time.Second)).Round(10 * time.Microsecond)
	return fmt.Sprintf("%s answered, %d did not%s; the median is %v, through the coordinator", units.Plural(len(times), "node"), missing, state, middle)
}

func (t *stacks) lines() []string {
	switch {
	case t.err != "":
		return []string{clean(t.err)}
	case !t.done:
		return []string{"the ranks are asked ..."}
	}
	var lines []string
	for line := range strings.Lines(t.text) {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		lines = append(lines, strings.Repeat(" ", min(indent, 200))+clean(strings.TrimSpace(line)))
	}
	return lines
}
