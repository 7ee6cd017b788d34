package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/tools/bench/record"
)

// The sizes of a plot, in pixels.
const (
	width  = 760
	left   = 190 // the width of the launchers' names
	right  = 110 // medians
	row    = 22
	head   = 26 // the height of the name of a work
	top    = 36
	bottom = 34
)

// style is for light and dark pages. The plot has a background of its own, because the page may
// differ from the browser's preference.
const style = `svg{font:13px system-ui,sans-serif;--bg:#fff;--ink:#1f2328;--dim:#59636e;--line:#d1d9e0;--own:#0969da;--other:#6e5494}` +
	`@media(prefers-color-scheme:dark){svg{--bg:#0d1117;--ink:#f0f6fc;--dim:#9198a1;--line:#3d444d;--own:#58a6ff;--other:#c297ff}}` +
	`text{fill:var(--ink)}.b{fill:var(--bg)}.h{font-weight:600}.d{fill:var(--dim)}.e{text-anchor:end}.m{text-anchor:middle}` +
	`.g{stroke:var(--line);fill:none}.own,.other{fill:none;stroke-width:8;stroke-linecap:round;stroke-opacity:.45}` +
	`.own{stroke:var(--own)}.other{stroke:var(--other)}.t{stroke:var(--ink);stroke-width:2.5;fill:none}`

// axis maps values to places.
type axis struct {
	low, high float64
	log       bool
}

// newAxis returns a logarithmic axis if the values differ much, and otherwise one that begins at
// zero.
func newAxis(lowest, highest float64) axis {
	if lowest > 0 && highest/lowest > 20 {
		return axis{math.Pow(10, math.Floor(math.Log10(lowest))), math.Pow(10, math.Ceil(math.Log10(highest))), true}
	}
	step := math.Pow(10, math.Floor(math.Log10(max(highest, 1e-9))))
	return axis{0, step * math.Ceil(highest/step), false}
}

func (a axis) x(value float64) float64 {
	part := (value - a.low) / (a.high - a.low)
	if a.log {
		part = math.Log(value/a.low) / math.Log(a.high/a.low)
	}
	return left + part*(width-left-right)
}

func (a axis) ticks() (all []float64) {
	if a.log {
		for v := a.low; v < a.high*1.01; v *= 10 {
			all = append(all, v)
		}
		return all
	}
	for i := range 5 {
		all = append(all, a.low+float64(i)*(a.high-a.low)/4)
	}
	return all
}

// plot shows each sample of a group as a dot and each median as a line. It returns nil if there is
// nothing to show.
func plot(rec *record.Record, g record.Group) []byte {
	lowest, highest, rows, works := extent(rec, g)
	if rows == 0 || g.Unit == record.Share {
		return nil
	}
	height := top + works*head + rows*row + bottom
	a := newAxis(lowest, highest)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="t d">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title id=\"t\">%s</title>\n<desc id=\"d\">%s</desc>\n<style>%s</style>\n", html.EscapeString(g.Title), html.EscapeString(described(rec, g)), style)
	fmt.Fprintf(&b, `<rect class="b" width="%d" height="%d" rx="6"/>`+"\n<text class=\"h\" x=\"12\" y=\"22\">%s</text>\n", width, height, html.EscapeString(g.Title))
	grid(&b, a, g.Unit, height)
	y := top
	for _, w := range g.Works {
		if !has(rec, w, g) {
			continue
		}
		if len(g.Works) > 1 {
			fmt.Fprintf(&b, `<text class="d" x="12" y="%d">%s</text>`+"\n", y+18, html.EscapeString(strings.ReplaceAll(w.Label, "`", "")))
		}
		y += head
		for _, peer := range g.Peers {
			if s := rec.Of(w.ID, peer); s != nil {
				dots(&b, a, s, g.Unit, y)
				y += row
			}
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func has(rec *record.Record, w record.Work, g record.Group) bool {
	for _, peer := range g.Peers {
		if rec.Of(w.ID, peer) != nil {
			return true
		}
	}
	return false
}

func extent(rec *record.Record, g record.Group) (lowest, highest float64, rows, works int) {
	lowest = math.Inf(1)
	for _, w := range g.Works {
		if has(rec, w, g) {
			works++
		}
		for _, peer := range g.Peers {
			s := rec.Of(w.ID, peer)
			if s == nil {
				continue
			}
			rows++
			for _, v := range s.Samples {
				lowest, highest = min(lowest, v), max(highest, v)
			}
		}
	}
	return lowest, highest, rows, works
}

func grid(b *bytes.Buffer, a axis, unit record.Unit, height int) {
	if a.log {
		fmt.Fprintf(b, `<text class="d" x="12" y="%d">logarithmic</text>`+"\n", height-12)
	}
	for _, v := range a.ticks() {
		x := places(a.x(v))
		fmt.Fprintf(b, `<path class="g" d="M%s %dV%d"/><text class="d m" x="%s" y="%d">%s</text>`+"\n", x, top, height-bottom, x, height-12, say(v, unit))
	}
}

func dots(b *bytes.Buffer, a axis, s *record.Series, unit record.Unit, y int) {
	fmt.Fprintf(b, `<text class="e" x="%d" y="%d">%s</text>`, left-12, y+15, s.Peer)
	if len(s.Samples) == 0 {
		fmt.Fprintf(b, `<text x="%d" y="%d">failed, %d of %d</text>`+"\n", left+8, y+15, s.Failed, s.Failed)
		return
	}
	class := "other"
	if strings.HasPrefix(s.Peer, record.Golaunch) {
		class = "own"
	}
	fmt.Fprintf(b, `<path class="%s" d="`, class)
	for _, v := range s.Samples {
		fmt.Fprintf(b, "M%s %dh0", places(a.x(v)), y+11)
	}
	_, median, _ := record.Spread(s.Samples)
	fmt.Fprintf(b, `"/><path class="t" d="M%s %dv16"/><text x="%d" y="%d">%s</text>`+"\n", places(a.x(median)), y+3, width-right+14, y+15, say(median, unit))
}

func places(x float64) string { return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64) }

// described describes the plot in words.
func described(rec *record.Record, g record.Group) string {
	var all []string
	for _, w := range g.Works {
		var of []string
		for _, peer := range g.Peers {
			if rec.Of(w.ID, peer) != nil {
				of = append(of, peer+" "+cell(rec, w.ID, peer, g.Unit, false))
			}
		}
		if len(of) > 0 {
			all = append(all, strings.ReplaceAll(w.Label, "`", "")+": "+strings.Join(of, ", "))
		}
	}
	return "Medians. " + strings.Join(all, "; ") + "."
}

// picture returns a plot in Markdown, with its text for people who do not see the plot.
func picture(rec *record.Record, g record.Group) string {
	if plot(rec, g) == nil {
		return ""
	}
	return fmt.Sprintf("![%s. %s](performance/%s.svg)\n\n", g.Title, described(rec, g), g.ID)
}
