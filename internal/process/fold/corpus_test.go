package fold

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// program has the lines that each rank of a job prints, once and at each step. {..} is a value.
// testdata has such programs.
type program struct{ once, steps []string }

func programs(t testing.TB) map[string]program {
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(names) < 8 {
		t.Fatal(names, err)
	}
	all := map[string]program{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		once, steps, _ := strings.Cut(string(text), "@steps\n")
		all[filepath.Base(name)] = program{
			strings.Split(strings.TrimSuffix(once, "\n"), "\n"),
			append(strings.Split(strings.TrimSuffix(steps, "\n"), "\n"), "batch shape [4, 128] loss={f:0.41-0.43:3}"),
		}
	}
	return all
}

var field = regexp.MustCompile(`\{([a-z]+)([0-9]*)(?::([0-9.]+)(?:-([0-9.]+))?(?::([0-9]+))?)?\}`)

// fill returns a line as a rank prints it at a step, in a job of the given size.
func fill(rnd *rand.Rand, text string, rank, world, step int) string {
	return field.ReplaceAllStringFunc(text, func(of string) string {
		p := field.FindStringSubmatch(of)
		low, _ := strconv.ParseFloat(p[3], 64)
		high, _ := strconv.ParseFloat(p[4], 64)
		places, _ := strconv.Atoi(p[5])
		x := low + (high-low)*rnd.Float64()
		switch p[1] + p[2] {
		case "r":
			return fmt.Sprint(rank)
		case "r1":
			return fmt.Sprint((rank + 1) % world)
		case "r3":
			return fmt.Sprintf("%03d", rank)
		case "l":
			return fmt.Sprint(rank % 8)
		case "w":
			return fmt.Sprint(world)
		case "host":
			return fmt.Sprintf("gpu-node-%d", rank/8)
		case "node":
			return fmt.Sprint(rank / 8)
		case "pid":
			return fmt.Sprint(20000 + 1000*(rank/8) + 7*(rank%8) + rank/3)
		case "md":
			return "0302"
		case "hms":
			return fmt.Sprintf("12:%02d:%02d", step/60%60, step%60)
		case "mm":
			return fmt.Sprintf("%02d", step/60%60)
		case "ss":
			return fmt.Sprintf("%02d", (step+rnd.IntN(2))%60)
		case "d", "lr":
			return fmt.Sprint(step % 10)
		case "s":
			return fmt.Sprintf("%"+p[3]+"d", step)
		case "s512":
			return fmt.Sprintf("%"+p[3]+"d", step*512)
		case "pct":
			return fmt.Sprintf("%"+p[3]+"d", step%100)
		case "bar":
			return strings.Repeat("█", step%100/10) + string([]rune("▏▎▍▌▋▊▉")[rnd.IntN(7)]) + strings.Repeat(" ", 9-step%100/10)
		case "hex":
			return fmt.Sprintf("7f%010x", rnd.Uint64()>>24)
		case "n":
			return fmt.Sprint(int(x))
		case "f":
			return strconv.FormatFloat(x, 'f', places, 64)
		case "e":
			return strconv.FormatFloat(x, 'E', 6, 64)
		}
		panic(of)
	})
}

// plant is an anomaly: a rank prints something else at a step.
type plant struct {
	kind       string
	step, rank int
	// line is the index of the line within the step, and shows is the text of it that must be seen.
	line  int
	shows []string
}

var kinds = []string{"nan", "shape", "warning", "outlier", "missing", "traceback"}

var float = regexp.MustCompile(`\{[fe]:([0-9.]+)-[0-9.]+(:[0-9]+)?\}`)

// change returns the lines that the rank prints instead of a step's lines.
func (p *plant) change(rnd *rand.Rand, lines []string) []string {
	lines = slices.Clone(lines)
	for p.line = rnd.IntN(len(lines)); (p.kind == "nan" || p.kind == "outlier") && !float.MatchString(lines[p.line]); {
		p.line = rnd.IntN(len(lines))
	}
	switch p.kind {
	case "nan":
		at := float.FindStringIndex(lines[p.line])
		lines[p.line] = lines[p.line][:at[0]] + "nan" + lines[p.line][at[1]:]
		p.shows = []string{"nan"}
	case "outlier":
		at := float.FindStringSubmatchIndex(lines[p.line])
		low, _ := strconv.ParseFloat(lines[p.line][at[2]:at[3]], 64)
		value := strconv.FormatFloat(20*low, 'f', 4, 64)
		lines[p.line] = lines[p.line][:at[0]] + value + lines[p.line][at[1]:]
		p.shows = []string{value}
	case "shape":
		p.line = len(lines) - 1
		lines[p.line] = strings.Replace(lines[p.line], "128", "64", 1)
		p.shows = []string{"[4, 64]"}
	case "missing":
		lines = slices.Delete(lines, p.line, p.line+1)
	case "warning":
		p.shows = []string{"UserWarning: gradient is stale on parameter 17"}
		lines = slices.Insert(lines, p.line, p.shows...)
	case "traceback":
		p.shows = []string{
			"Traceback (most recent call last):", `  File "/opt/train.py", line 120, in step`, "    loss.backward()",
			"RuntimeError: CUDA error: an illegal memory access was encountered",
		}
		lines = slices.Insert(lines, p.line, p.shows...)
	}
	return lines
}

const between = 400 * time.Millisecond

// run returns the lines of a job in order of time, with an anomaly at each step except the first.
func (p program) run(rnd *rand.Rand, world, steps int) (lines []Line, plants []plant) {
	say := func(rank, step int, at time.Time, texts []string) {
		for i, text := range texts {
			lines = append(lines, Line{
				rank, Stdout, []byte(fill(rnd, text, rank, world, step)), at.Add(time.Duration(i) * 100 * time.Microsecond),
			})
		}
	}
	for rank := range world {
		say(rank, 0, begin.Add(time.Duration(rnd.IntN(50))*time.Millisecond), p.once)
	}
	for step := 1; step <= steps; step++ {
		odd := plant{kind: kinds[rnd.IntN(len(kinds))], step: step, rank: rnd.IntN(world)}
		for rank := range world {
			at := begin.Add(time.Duration(step)*between + time.Duration(rnd.IntN(60))*time.Millisecond)
			if rank == odd.rank && step > 1 {
				say(rank, 100+step, at, odd.change(rnd, p.steps))
			} else {
				say(rank, 100+step, at, p.steps)
			}
		}
		if step > 1 {
			plants = append(plants, odd)
		}
	}
	slices.SortStableFunc(lines, func(a, b Line) int { return a.At.Compare(b.At) })
	return lines, plants
}

// seen reports whether groups show an anomaly with its rank.
func (p plant) seen(groups []Group, world int, steps []string) bool {
	want := []int{p.rank}
	shows := p.shows
	if p.kind == "missing" {
		want = slices.DeleteFunc(slices.Collect(World(world).All()), func(r int) bool { return r == p.rank })
		shows = []string{longest(steps[p.line])}
		return slices.ContainsFunc(groups, func(g Group) bool {
			return slices.Equal(g.Ranks, Of(want...)) && strings.Contains(g.Text(), shows[0])
		})
	}
	for i := range groups {
		rows := 0
		for rows < len(shows) && i+rows < len(groups) && slices.Equal(groups[i+rows].Ranks, Of(want...)) &&
			strings.Contains(groups[i+rows].Text(), shows[rows]) {
			rows++
		}
		if rows == len(shows) {
			return true
		}
	}
	return false
}

// longest returns the longest words of a line without values.
func longest(text string) (words string) {
	for _, part := range regexp.MustCompile(`\{[^}]*\}|[0-9]+|\x1b\[[0-9]*m| +`).Split(text, -1) {
		if len(part) > len(words) {
			words = part
		}
	}
	return words
}

// TestAnomalies plants a thousand anomalies into the output of jobs. Each must be seen with its
// rank, and no line may be lost or shown wrongly.
func TestAnomalies(t *testing.T) {
	const world, steps = 24, 126
	all, unseen, rays := 0, 0, 0
	for name, p := range programs(t) {
		lines, plants := p.run(rand.New(rand.NewPCG(1, uint64(len(name)))), world, steps)
		f := New(0, World(world))
		o := watched(f)
		for _, l := range lines {
			for due, open := f.Due(); open && due.Before(l.At); due, open = f.Due() {
				f.Tick(due)
			}
			o.add(l)
		}
		f.Flush()
		if err := o.end(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		ray := deduplicated(lines)
		missed := map[string]int{}
		for _, odd := range plants {
			if all++; !odd.seen(o.at(odd.step), world, p.steps) {
				if unseen++; missed[odd.kind] == 0 {
					t.Errorf("%s: not seen: %+v in\n%v", name, odd, join(o.at(odd.step)))
				}
				missed[odd.kind]++
			}
			if odd.kind != "missing" && ray.seen(odd) {
				rays++
			}
		}
		t.Logf("%s: %d lines in %d groups", name, len(lines), len(o.groups))
		if len(o.groups)*5 > len(lines) {
			t.Errorf("%s: %d lines in %d groups:\n%s", name, len(lines), len(o.groups), join(o.groups[:min(len(o.groups), 150)]))
		}
	}
	t.Logf("%d anomalies: %d are seen; by Ray's rule %d", all, all-unseen, rays)
	if all < 1000 {
		t.Errorf("%d anomalies", all)
	}
}

// at returns the groups of a step.
func (o *oracle) at(step int) (groups []Group) {
	from := begin.Add(time.Duration(step) * between)
	for _, g := range o.groups {
		if !g.First.Before(from) && g.First.Before(from.Add(between)) {
			groups = append(groups, g)
		}
	}
	return groups
}

func join(groups []Group) string {
	var text strings.Builder
	for _, g := range groups {
		fmt.Fprintf(&text, "%q\n", g.String())
	}
	return text.String()
}

// shown returns the lines that Ray's rule shows: the first line of a kind at once, and the last
// line that other ranks print within five seconds. Lines are of the same kind if their words
// without digits are equal.
type shown []Line

func deduplicated(lines []Line) (out shown) {
	type state struct {
		since time.Time
		ranks map[int]bool
		last  *Line
	}
	recent := map[string]*state{}
	for _, l := range lines {
		for key, s := range recent {
			if l.At.Sub(s.since) >= 5*time.Second {
				if s.last != nil {
					out = append(out, *s.last)
				}
				delete(recent, key)
			}
		}
		key := strings.Join(slices.DeleteFunc(strings.Fields(string(l.Text)), func(word string) bool {
			return strings.ContainsAny(word, "0123456789")
		}), " ")
		s := recent[key]
		if s == nil {
			s = &state{l.At, map[int]bool{}, nil}
			recent[key] = s
		}
		if s.ranks[l.Rank] = true; len(s.ranks) == 1 {
			out = append(out, l)
		} else {
			s.last = &l
		}
	}
	for _, s := range recent {
		if s.last != nil {
			out = append(out, *s.last)
		}
	}
	return out
}

// seen reports whether an anomaly is shown completely as a line of its rank.
func (s shown) seen(p plant) bool {
	from := begin.Add(time.Duration(p.step) * between)
	for _, want := range p.shows {
		if !slices.ContainsFunc(s, func(l Line) bool {
			return l.Rank == p.rank && !l.At.Before(from) && l.At.Before(from.Add(between)) && strings.Contains(string(l.Text), want)
		}) {
			return false
		}
	}
	return true
}
