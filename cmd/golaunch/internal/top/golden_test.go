package top

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view/viewtest"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

var rewrite = flag.Bool("rewrite", false, "accept the pictures in testdata as they are drawn now")

// plainTheme has no styles: pictures in it are readable.
var plainTheme = Theme{Name: "plain"}

// watched returns the state of a model after its source was asked. It must be called in a bubble of
// virtual time.
func watched(t *testing.T, s view.Source) *Picture {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	m := view.New(map[string]view.Source{"10.0.0.1:29400": s}, view.Options{})
	go m.Run(ctx)
	synctest.Wait()
	p := NewPicture(m.State())
	cancel()
	synctest.Wait()
	return p
}

// simulated is a screen of a simulated cluster, ten minutes after its first job was submitted.
func simulated(t testing.TB, c *viewtest.Cluster, keys ...string) *screen {
	var s *screen
	synctest.Test(t.(*testing.T), func(t *testing.T) {
		c.Began = time.Now().Add(-10 * time.Minute)
		s = pictured(watched(t, c), keys...)
	})
	return s
}

func pictured(p *Picture, keys ...string) *screen {
	s := newScreen(everything, []Theme{plainTheme})
	s.zone, s.clock = time.UTC, p.State.At
	s.show(p)
	for _, k := range keys {
		s.press(k)
	}
	return s
}

func (s *screen) sized(width, height int) *screen {
	s.width, s.height = width, height
	return s
}

// same compares a picture with the picture in testdata.
func same(t *testing.T, name string, s *screen) {
	t.Helper()
	got := s.frame()
	fits(t, s, got)
	sameText(t, name, got+"\n")
}

func sameText(t *testing.T, name, got string) {
	t.Helper()
	got = strings.ReplaceAll(got, "\x1b", "␛")
	file := filepath.Join("testdata", name+".golden")
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run with -rewrite to draw it", err)
	}
	if got != string(want) {
		t.Errorf("%s is not as it was; run with -rewrite if it is better so:\n%s\nwas\n%s", name, got, want)
	}
}

// fits checks that a frame is as large as its screen, or smaller.
func fits(t interface {
	Helper()
	Fatalf(string, ...any)
}, s *screen, frame string,
) {
	t.Helper()
	lines := strings.Split(frame, "\n")
	if len(lines) > s.height {
		t.Fatalf("%d lines on a screen of %d:\n%s", len(lines), s.height, frame)
	}
	for i, line := range lines {
		if w := lipgloss.Width(line); w > s.width {
			t.Fatalf("line %d is %d columns wide, the screen %d: %q\n%s", i, w, s.width, line, frame)
		}
	}
}

// TestPictures compares the pictures that people see. Look at them when they change.
func TestPictures(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes int
		w, h  int
		keys  string
	}{
		{"jobs-16-80x24", 16, 80, 24, ""},
		{"jobs-16-200x50", 16, 200, 50, ""},
		{"jobs-16-20x10", 16, 20, 10, ""},
		{"jobs-1-80x24", 1, 80, 24, ""},
		{"jobs-1000-120x40", 1000, 120, 40, ""},
		{"nodes-16-100x30", 16, 100, 30, "n"},
		{"job-16-80x24", 16, 80, 24, "j j enter"},
		{"job-16-200x50", 16, 200, 50, "j j enter"},
		{"job-16-20x10", 16, 20, 10, "j j enter"},
		{"job-1000-120x40", 1000, 120, 40, "j j enter"},
		{"ranks-16-120x40", 16, 120, 40, "j j enter n"},
		{"ranks-1-80x24", 1, 80, 24, "j enter"},
		{"node-16-80x24", 16, 80, 24, "n enter"},
		{"rank-16-80x24", 16, 80, 24, "j j enter n enter"},
		{"rank-16-20x10", 16, 20, 10, "j j enter n enter"},
		{"events-16-80x24", 16, 80, 24, "j j enter tab tab"},
		{"heat-power-16-100x30", 16, 100, 30, "j j enter tab m m"},
		{"filter-16-80x24", 16, 80, 24, "j j enter n / 1 2 enter"},
		{"filter-none-16-80x24", 16, 80, 24, "/ z z"},
		{"attempts-16-80x24", 16, 80, 24, "j j enter a j"},
		{"backoff-16-80x24", 16, 80, 24, "enter"},
		{"help-80x24", 16, 80, 24, "?"},
		{"help-20x10", 16, 20, 10, "?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := simulated(t, &viewtest.Cluster{Nodes: c.nodes, Slow: 5}).sized(c.w, c.h)
			for k := range strings.FieldsSeq(c.keys) {
				s.press(k)
			}
			same(t, c.name, s)
		})
	}
}

// TestThemes has the same picture in each theme, with its control sequences.
func TestThemes(t *testing.T) {
	for i, theme := range Themes() {
		s := simulated(t, &viewtest.Cluster{Nodes: 2, Slow: 3}, "enter", "n", "tab").sized(60, 16)
		s.themes, s.theme = Themes(), i
		same(t, "theme-"+theme.Name, s)
		s.themes, s.theme, s.ascii = []Theme{plainTheme}, 0, true
		same(t, "theme-ascii", s)
	}
}

// TestSlow names a straggler after it was watched for some minutes.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		c := &viewtest.Cluster{Nodes: 3, Slow: 5, Every: time.Second, Began: now.Add(-10 * time.Minute), SlowFrom: now.Add(2 * time.Minute)}
		m := view.New(map[string]view.Source{"this machine": c}, view.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		m.Run(ctx)
		same(t, "slow", pictured(NewPicture(m.State()), "enter", "n"))
	})
}

// source is a coordinator with the answers of a test.
type source struct {
	viewtest.Cluster
	status  report.Status
	samples []launcher.NodeSamples
}

func (s *source) Query(context.Context, report.Query) (report.Status, error) {
	return s.status, nil
}

func (s *source) Samples(ctx context.Context, _ launcher.SampleQuery) iter.Seq2[launcher.NodeSamples, error] {
	return func(yield func(launcher.NodeSamples, error) bool) {
		for _, n := range s.samples {
			if !yield(n, nil) {
				return
			}
		}
		<-ctx.Done()
	}
}

// alone is a job of four ranks on this machine, without GPUs; one of them is stuck.
func alone(now time.Time) *source {
	s := &source{status: report.Status{
		Version: "v1.0.0", Nodes: []report.NodeStatus{{Name: "laptop", CPUs: 8, Holds: []report.Holding{{Job: "5f3a"}}}},
		Jobs: []report.JobStatus{{
			ID: "5f3a", Title: "python3 train.py", Phase: "running", Waits: "4 ranks to end", Submitted: now.Add(-90 * time.Second), MaxRestarts: 3,
			Nodes: []string{"laptop"}, Ranks: 4, History: []report.Moment{
				{At: now.Add(-90 * time.Second), To: "starting", Reason: "attempt 0 starts"}, {At: now.Add(-89 * time.Second), To: "training", Reason: "4 ranks run"},
			},
		}},
	}}
	node := launcher.NodeSamples{Node: "laptop", Now: now, Series: []report.Series{{Rank: -1}}}
	for rank := range 4 {
		of := report.Series{Job: "5f3a", Rank: rank, LocalRank: rank, PID: 100 + rank, Does: "asleep (futex_wait_queue)"}
		for at := 85; at >= 0; at -= 5 {
			u := report.Unmeasured()
			u.CPUs, u.Memory, u.Processes, u.Step, u.Total, u.StepTime, u.BeatAge = 0.9, 3e8, 1, float64((90-at)/2), 1000, 2, 0.5
			if late := 45 - at; rank == 2 && late > 0 {
				u.Step, u.BeatAge, u.CPUs = 22, float64(late), 0
			}
			of.Samples = append(of.Samples, report.Sample{At: now.Add(-time.Duration(at) * time.Second), Usage: u})
		}
		node.Series = append(node.Series, of)
	}
	s.samples = []launcher.NodeSamples{node}
	return s
}

// TestSmallPictures has pictures of clusters that viewtest does not simulate.
func TestSmallPictures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		same(t, "empty", pictured(watched(t, &source{status: report.Status{Version: "v1.0.0"}})))
		p := watched(t, alone(time.Now()))
		same(t, "alone", pictured(p))
		same(t, "alone-ranks", pictured(p, "enter"))
		same(t, "alone-rank", pictured(p, "enter", "enter"))
		hostile := alone(time.Now())
		j := &hostile.status.Jobs[0]
		j.Title, j.Phase, j.Waits = "<b>\x1b]0;x\x07\x1b[31mred\x1b[0m\n漢字漢字 e\u0301 \u202eevil \u200d\U0001f468\u200d\U0001f469", "stopping", "\x1b[2J\x9b1mgone\t!"
		j.History[1].Reason = "\x1b[Hhome 漢字 " + strings.Repeat("é", 200)
		same(t, "hostile", pictured(watched(t, hostile)))
	})
}

// TestTrouble: while there is trouble, the picture stays, with its age.
func TestTrouble(t *testing.T) {
	s := simulated(t, &viewtest.Cluster{Nodes: 2, Slow: -1})
	s.clock = s.clock.Add(13 * time.Second)
	s.themes = Themes()
	same(t, "trouble-silent", s)
	s.picture.State.Trouble = "cannot reach the coordinator at 10.0.0.1:29400: connection refused"
	same(t, "trouble", s)
	synctest.Test(t, func(t *testing.T) {
		same(t, "trouble-from-the-start", pictured(watched(t, &viewtest.Cluster{Fails: func() error { return errors.New("no route to host") }})))
	})
}

// TestOverlays: overlays cover the panes.
func TestOverlays(t *testing.T) {
	s := simulated(t, &viewtest.Cluster{Nodes: 16, Slow: -1}, "d")
	s.probe = probe{name: "how fast all nodes answer", done: true}
	for pong := range (&viewtest.Cluster{Nodes: 16}).Ping(t.Context(), "", 0) {
		s.probe.pongs = append(s.probe.pongs, pong)
	}
	same(t, "probe", s)
	s.press("esc")
	s.press("s")
	s.stacks = stacks{name: "stacks of llama-70b", text: "r0-6\n  main (train.py:3)\n    all_reduce\x1b[1m (dist.py:9)\nr7\n", done: true}
	same(t, "stacks", s)
	s.stacks = stacks{name: "stacks of llama-70b", err: errNoStacks.Error(), done: true}
	same(t, "stacks-none", s)
}

// TestLog shows the newest lines, and earlier ones after scrolling.
func TestLog(t *testing.T) {
	s := simulated(t, &viewtest.Cluster{Nodes: 1, Slow: -1}, "/", "l", "l", "a", "enter", "enter", "l")
	of, some := s.picture.subject(s.chosen())
	if !some || of.job != "llama-70b" || len(of.ranks) != 1 || of.prefix {
		t.Fatalf("%+v, %v", of, some)
	}
	of, _ = s.picture.subject(s.current())
	f := newFollower(of, func() {})
	f.follow(t.Context(), []view.Source{&silent{}, &once{viewtest.Cluster{Nodes: 1}}})
	s.log = f.seen()
	same(t, "log", s.sized(80, 24))
	s.press("g")
	same(t, "log-first", s)
	s.press("G")
	same(t, "log", s)
}

// silent knows no job.
type silent struct{ viewtest.Cluster }

func (silent) Logs(context.Context, string, report.LogFilter) iter.Seq2[report.LogChunk, error] {
	return func(yield func(report.LogChunk, error) bool) { yield(report.LogChunk{}, launcher.ErrNotThere) }
}

// once has a log that ends.
type once struct{ viewtest.Cluster }

func (o *once) Logs(ctx context.Context, id string, f report.LogFilter) iter.Seq2[report.LogChunk, error] {
	f.Follow = false
	return o.Cluster.Logs(ctx, id, f)
}

// TestPrint has the same picture, printed once as text.
func TestPrint(t *testing.T) {
	s := simulated(t, &viewtest.Cluster{Nodes: 16, Slow: 5})
	for name, job := range map[string]string{"once": "", "once-job": "llama-70b", "once-backoff": "moe-ablation-3"} {
		for _, width := range []int{0, 80} {
			var b strings.Builder
			if err := Print(&b, s.picture, job, width); err != nil {
				t.Fatal(err)
			}
			sameText(t, fmt.Sprint(name, "-", width), b.String())
		}
	}
}
