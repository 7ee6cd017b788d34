package fold

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// oracle checks a folder's groups against its lines, with an independent method.
type oracle struct {
	f      *Folder
	lines  []Line
	group  []int
	groups []Group
	err    error
}

func watched(f *Folder) *oracle {
	o := &oracle{f: f}
	f.watch = o.given
	return o
}

func (o *oracle) add(l Line) []Group {
	l.Text = []byte(string(l.Text))
	o.lines = append(o.lines, l)
	o.group = append(o.group, -1)
	return o.f.Add(l)
}

func (o *oracle) given(g Group, lines []uint64) {
	o.groups = append(o.groups, g)
	ranks := map[int]bool{}
	for _, n := range lines {
		if o.group[n-1] >= 0 {
			o.fail("line %d is in two groups", n)
		}
		o.group[n-1] = len(o.groups) - 1
		ranks[o.lines[n-1].Rank] = true
		if err := says(g, o.lines[n-1]); err != nil {
			o.fail("line %d: %w", n, err)
		}
	}
	if len(lines) != g.Lines || g.Ranks == nil {
		o.fail("%d lines in %+v", len(lines), g)
	}
	for r := range ranks {
		if !g.Ranks.Has(r) {
			o.fail("rank %d is not in %v", r, g)
		}
	}
	if g.Ranks.Len() != len(ranks) {
		o.fail("%d ranks printed %v", len(ranks), g)
	}
}

func valid(rank int) bool { return rank >= 0 && rank <= MaxRank }

func (o *oracle) fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf(format, args...)
	}
}

// end checks that all lines were returned, and the lines of blocks in order.
func (o *oracle) end() error {
	type source struct {
		rank   int
		stream Stream
	}
	last, inside := map[source]int{}, map[source]bool{}
	for i, l := range o.lines {
		if o.group[i] < 0 {
			o.fail("line %d is lost: %q", i+1, l.Text)
			break
		}
		of := source{l.Rank, l.Stream}
		text := plainText(l.Text)
		indent := text == "" || text[0] == ' ' || text[0] == '\t'
		before, found := last[of]
		if valid(l.Rank) && found && (indent || inside[of]) && o.group[i] <= before {
			o.fail("line %d, %q of rank %d, is in group %d, before that of the line before it, %d", i+1, text, l.Rank, o.group[i], before)
		}
		last[of], inside[of] = o.group[i], indent
	}
	return o.err
}

var escapes = regexp.MustCompile("\x1b(?:\\[[ -?]{0,124}[@-~]|[\\]PX^_](?s:[^\x07\x1b]{0,1000})(?:\x07|\x1b\\\\))?")

func plainText(raw []byte) string {
	text := strings.TrimRight(string(raw), "\r\n")
	text = text[strings.LastIndexByte(text, '\r')+1:]
	if !strings.Contains(text, "\x1b") {
		return text
	}
	return string(escapes.ReplaceAllFunc([]byte(text), func([]byte) []byte { return nil }))
}

// says checks that a line is in a group.
func says(g Group, l Line) error {
	text := plainText(l.Text)
	if len(text) > maxHead {
		if g.Cut != len(text)-maxHead {
			return fmt.Errorf("%d bytes are cut of %d", g.Cut, len(text))
		}
		text = text[:maxHead]
	}
	switch {
	case l.Stream != g.Stream:
		return fmt.Errorf("of stream %d, in a group of %d", l.Stream, g.Stream)
	case l.At.Before(g.First) || l.At.After(g.Last):
		return fmt.Errorf("at %v, in a group from %v to %v", l.At, g.First, g.Last)
	case !matches(g.Parts, text):
		return fmt.Errorf("%q is not %q", text, g.Text())
	}
	return nil
}

// matches tries all ways to read a text as these parts.
func matches(parts []Part, text string) bool {
	if len(parts) == 0 {
		return text == ""
	}
	if p := parts[0]; p.Kind == Words {
		return strings.HasPrefix(text, p.Text) && matches(parts[1:], text[len(p.Text):])
	}
	for end := 0; end <= len(text); end++ {
		if len(parts) > 1 && parts[1].Kind == Words {
			at := strings.Index(text[end:], parts[1].Text)
			if at < 0 {
				return false
			}
			end += at
		} else if len(parts) == 1 {
			end = len(text)
		}
		if within(parts[0], text[:end]) && matches(parts[1:], text[end:]) {
			return true
		}
	}
	return false
}

// within reports whether a value lies between the extremes of a part.
func within(p Part, text string) bool {
	if p.Kind != Bar {
		text = strings.TrimLeft(text, " ")
	}
	if text == p.Low || text == p.High {
		return true
	}
	if p.Low == p.High || text == "" {
		return false
	}
	switch p.Kind {
	case Integer, Number:
		v, ok := number(text)
		low, _ := number(p.Low)
		high, _ := number(p.High)
		return ok && low <= v*(1+1e-12) && v <= high*(1+1e-12) || ok && v < 0 && low*(1+1e-12) <= v && v*(1+1e-12) <= high
	case Moment:
		return regexp.MustCompile(`^[0-9TZ:.,/ +-]+$`).MatchString(text) && (len(text) != len(p.Low) || len(text) != len(p.High) || text >= p.Low && text <= p.High)
	case Name:
		return regexp.MustCompile(`^[0-9A-Za-z-]+$`).MatchString(text) && text >= p.Low && text <= p.High
	case Address:
		return regexp.MustCompile(`^0[xX][0-9a-fA-F]+$`).MatchString(text) && (len(text) != len(p.Low) || len(text) != len(p.High) || strings.ToLower(text) >= strings.ToLower(p.Low) && strings.ToLower(text) <= strings.ToLower(p.High))
	}
	return p.Kind == Bar
}

var scales = map[string]float64{
	"": 1, "B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "d": 86400, "m": 60, "min": 60, "mins": 60, "sec": 1, "secs": 1, "seconds": 1,
}

func number(text string) (float64, bool) {
	if n, err := strconv.ParseFloat(text, 64); err == nil || n != 0 {
		return n, true
	}
	if d, err := time.ParseDuration(text); err == nil {
		return d.Seconds(), true
	}
	digits := strings.TrimRight(text, "kKMGTiBdmsecon")
	if scale, ok := scales[text[len(digits):]]; ok {
		n, err := strconv.ParseFloat(digits, 64)
		return n * scale, err == nil
	}
	return 0, strings.ContainsAny(text, "dmins") // package time does not know it: its order is not checked
}

func TestTheOracle(t *testing.T) {
	l := Line{3, Stdout, []byte("step 5 loss=0.5"), begin}
	good := Group{
		Stream: Stdout, Ranks: Of(3), Lines: 1, First: begin, Last: begin,
		Parts: []Part{{Text: "step "}, {Kind: Integer, Low: "5", High: "5"}, {Text: " loss="}, {Kind: Number, Low: "0.4", High: "0.6"}},
	}
	if err := says(good, l); err != nil {
		t.Error(err)
	}
	for what, bad := range map[string]func(*Group){
		"value": func(g *Group) { g.Parts[3].Low = "0.51" }, "integer": func(g *Group) { g.Parts[1] = Part{Kind: Integer, Low: "6", High: "7"} },
		"words": func(g *Group) { g.Parts[0].Text = "Step " }, "stream": func(g *Group) { g.Stream = Stderr },
		"time": func(g *Group) { g.First = at(1) },
	} {
		g := good
		g.Parts = append([]Part(nil), good.Parts...)
		if bad(&g); says(g, l) == nil {
			t.Errorf("another %s is not found", what)
		}
	}
}
