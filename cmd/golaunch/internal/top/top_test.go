package top

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"pgregory.net/rapid"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view/viewtest"
	"github.com/golaunch/golaunch/launcher/report"
)

// TestClean: any text becomes one line without control characters, of the assumed width.
func TestClean(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", "\x1b[31;1mred\x1b[0m": "red", "\x1b]0;title\x07x": "x", "\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\": "link",
		"a\tb\nc\rd": "a b c d", "e\u0301": "e\u0301", "\u0301e": "e", "\u202eevil": "evil", "<b>": "<b>", "漢字": "漢字", "\x1b[": "", "\x1b": "",
		"a\u0301\u0301\u0301\u0301b": "a\u0301\u0301b", "\xff": "\ufffd", "\x9b31m": "\ufffd31m", "\u009b31m": "31m", "\x00\x07\x08": "",
	} {
		if got := clean(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	cleaned(t, "\U0001f3ff") // this character changes the character before it, even a blank
	rapid.Check(t, func(t *rapid.T) { cleaned(t, rapid.String().Draw(t, "text")) })
}

func FuzzClean(f *testing.F) {
	f.Add("\x1b[31mred\u0301 漢\u200d\U0001f468\U0001f3fd\U0001f1e9\U0001f1ea")
	f.Fuzz(func(t *testing.T, text string) { cleaned(t, text) })
}

func cleaned(t interface{ Fatalf(string, ...any) }, text string) {
	got := clean(text)
	for _, r := range got {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			t.Fatalf("%q becomes %q, which has %U", text, got, r)
		}
	}
	if width(got) != lipgloss.Width(got) {
		t.Fatalf("%q is %d wide, not %d", got, lipgloss.Width(got), width(got))
	}
	for n := range 20 {
		if w := lipgloss.Width(cut(got, n, "…")); w > n {
			t.Fatalf("%q in %d columns takes %d", got, n, w)
		}
		if w := lipgloss.Width(fit(got, n, n%2 == 0, "…")); w != n {
			t.Fatalf("%q fit to %d columns takes %d", got, n, w)
		}
		if w := lipgloss.Width(cutMiddle(got, n, "…")); n >= 5 && w > n {
			t.Fatalf("%q with its end in %d columns takes %d", got, n, w)
		}
	}
}

var allKeys = []string{
	"j", "k", "g", "G", "pgdown", "pgup", "enter", "esc", "tab", "shift+tab", "n", "m", "t", "?", "/", "1", "backspace", "a", "l", "s", "d", "ctrl+d", "ctrl+u",
	"space", "漢",
}

// TestAnyScreen: after any keys, at any size of the screen, a frame fits and shows the selection.
func TestAnyScreen(t *testing.T) {
	var pictures []*Picture
	synctest.Test(t, func(t *testing.T) {
		began := time.Now().Add(-10 * time.Minute)
		hostile := alone(time.Now())
		hostile.status.Jobs[0].ID, hostile.status.Jobs[0].Waits = "漢字\x1b[31m漢字漢字漢字漢字漢字", strings.Repeat("\u0301x漢", 100)
		hostile.status.Nodes[0].Name = "\x1b]0;x\a" + strings.Repeat("e\u0301", 50)
		for _, s := range []view.Source{
			&viewtest.Cluster{Nodes: 9, Slow: 1, Began: began}, &viewtest.Cluster{Nodes: 1, Slow: -1, Began: began}, alone(time.Now()), hostile, &source{},
			&viewtest.Cluster{Fails: func() error { return errors.New("x\x1b[1m") }},
		} {
			pictures = append(pictures, watched(t, s))
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		s := pictured(rapid.SampledFrom(pictures).Draw(t, "picture"))
		s.themes = Themes()
		for range rapid.IntRange(1, 25).Draw(t, "number") {
			if rapid.IntRange(0, 9).Draw(t, "resize") == 0 {
				s.sized(rapid.IntRange(1, 220).Draw(t, "width"), rapid.IntRange(1, 70).Draw(t, "height"))
			}
			s.ascii = rapid.Bool().Draw(t, "ascii")
			s.press(rapid.SampledFrom(allKeys).Draw(t, "key"))
			if rapid.IntRange(0, 9).Draw(t, "new") == 0 {
				s.show(rapid.SampledFrom(pictures).Draw(t, "next"))
			}
			frame := s.frame()
			fits(t, s, frame)
			large := s.width >= leastWidth && s.height >= leastHeight
			if table := s.layout()[tablePane]; large && s.over == noOverlay && table > 2 && s.rows.n > 0 && !strings.Contains(frame, ">"+newLook(Theme{}, s.ascii).mark[s.rows.row(s.spot().index).level]) {
				t.Fatalf("no row is chosen:\n%s", frame)
			}
		}
	})
}

// TestChosenStays: a selection stays while other rows become worse; without one, the worst row is
// selected.
func TestChosenStays(t *testing.T) {
	s := simulated(t, &viewtest.Cluster{Nodes: 2, Slow: -1}, "enter", "n", "j", "j")
	was := s.chosen()
	later := simulated(t, &viewtest.Cluster{Nodes: 2, Slow: 6})
	s.show(later.picture)
	if s.chosen() != was || s.spot().index == 2 {
		t.Errorf("%+v was chosen, and then %+v at %d", was, s.chosen(), s.spot().index)
	}
	s.press("g")
	s.show(later.picture)
	if s.chosen().rank != 6 {
		t.Errorf("the worst is rank 6, %+v is chosen", s.chosen())
	}
}

func TestKeys(t *testing.T) {
	for keys, want := range map[string]place{
		"":                                everything,
		"enter":                           {job: "llama-70b", rank: noRank},
		"enter n enter":                   {job: "llama-70b", node: "gpu0000", rank: 0},
		"enter enter":                     {job: "llama-70b", node: "gpu0001", rank: noRank},
		"enter j enter enter":             {job: "llama-70b", node: "gpu0000", rank: 0},
		"enter enter esc":                 {job: "llama-70b", rank: noRank},
		"enter enter alt+esc alt+n":       {rank: noRank, other: true},
		"enter esc esc":                   everything,
		"n":                               {rank: noRank, other: true},
		"n enter":                         {node: "gpu0001", rank: noRank},
		"n j enter enter":                 {job: "llama-70b", node: "gpu0000", rank: 0},
		"n n":                             everything,
		"/ t o k enter enter":             {job: "tokenize", rank: noRank},
		"/ t o k esc enter":               {job: "llama-70b", rank: noRank},
		"G enter":                         {job: "tokenize", rank: noRank},
		"enter tab enter":                 {job: "llama-70b", rank: noRank},
		"enter tab esc":                   {job: "llama-70b", rank: noRank},
		"? enter enter":                   {job: "llama-70b", rank: noRank},
		"enter n / 3 enter enter":         {job: "llama-70b", node: "gpu0000", rank: 3},
		"enter n / 9 9 esc enter":         {job: "llama-70b", node: "gpu0000", rank: 0},
		"enter n / 9 9 enter esc j enter": {job: "llama-70b", node: "gpu0000", rank: 1},
	} {
		s := simulated(t, &viewtest.Cluster{Nodes: 2, Slow: -1}, strings.Fields(keys)...)
		if s.current() != want {
			t.Errorf("%q goes to %+v, not %+v", keys, s.current(), want)
		}
	}
	s := simulated(t, &viewtest.Cluster{Nodes: 1, Slow: -1})
	for key, want := range map[string]want{"q": quit, "ctrl+c": quit, "ctrl+z": suspend, "l": wantLog, "x": nothing} {
		if got := s.press(key); got != want {
			t.Errorf("%s asks for %d", key, got)
		}
	}
	for key, over := range map[string]overlay{"s": stackOverlay, "d": probeOverlay, "?": helpOverlay} {
		s.press(key)
		if s.over != over {
			t.Errorf("%s shows %d", key, s.over)
		}
		s.press("esc")
	}
}

// TestPump: the pump learns of all changes, even while something else, such as a log, changes all
// the time.
func TestPump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &viewtest.Cluster{Nodes: 2, Slow: -1, Began: time.Now().Add(-20 * time.Minute), Every: time.Second}
		ctx, cancel := context.WithCancel(t.Context())
		m := view.New(map[string]view.Source{"a": c}, view.Options{})
		a := newApp(ctx, Options{Model: m})
		learnt := 0
		var all sync.WaitGroup
		all.Go(func() { m.Run(ctx) })
		all.Go(func() {
			a.pump(func(msg tea.Msg) {
				if msg.(refreshed).learnt {
					learnt++
				}
			})
		})
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			a.tell()
		}
		cancel()
		all.Wait()
		if learnt < 55 {
			t.Errorf("in a minute in which there was something new each second, that was seen %d times", learnt)
		}
	})
}

// TestFollower: a follower keeps a bounded number of bounded lines.
func TestFollower(t *testing.T) {
	f := newFollower(subject{job: "a"}, func() {})
	f.take(report.LogChunk{LogPosition: report.LogPosition{Rank: 3}, Data: []byte("one\ntw")})
	f.take(report.LogChunk{LogPosition: report.LogPosition{Rank: 4}, Data: []byte("\x1b[31mother\x1b[0m\n10%\r20%\r\n")})
	f.take(report.LogChunk{LogPosition: report.LogPosition{Rank: 3}, Data: []byte("o\n")})
	f.take(report.LogChunk{Missing: "node n1 has no such file"})
	if got, want := strings.Join(f.seen().lines, "|"), "one|other|20%|two|missing: node n1 has no such file"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for range 100 {
		f.take(report.LogChunk{LogPosition: report.LogPosition{Rank: 1}, Data: []byte(strings.Repeat("x", 64<<10))})
		f.take(report.LogChunk{LogPosition: report.LogPosition{Rank: 2}, Data: []byte(strings.Repeat("y\n", 32<<10))})
	}
	seen := f.seen()
	if len(seen.lines) != keptLines || len(f.open[[2]int{1, 0}]) > longestLine || seen.first != 5+100*32<<10-keptLines {
		t.Errorf("%d lines from %d, %d bytes of one that has not ended", len(seen.lines), seen.first, len(f.open[[2]int{1, 0}]))
	}
}

// TestFold: equal lines of several ranks are merged, and lines of a single rank follow after a
// moment.
func TestFold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollower(subject{job: "a", prefix: true}, func() {})
		for rank, text := range []string{"step 7 loss=0.41\n\x1b[2Jodd\n", "step 7 loss=0.43\n", "step 7 loss=0.42\n"} {
			f.take(report.LogChunk{LogPosition: report.LogPosition{Rank: rank, Stream: 1}, WorldSize: 3, Data: []byte(text)})
		}
		if got, want := strings.Join(f.seen().lines, "|"), "[r0-2] step 7 loss=0.41..0.43"; got != want {
			t.Errorf("at once %q, want %q", got, want)
		}
		time.Sleep(time.Second) // takes no time in a synctest bubble
		if got, want := f.seen().lines[1:], "[r0] odd"; len(got) != 1 || got[0] != want {
			t.Errorf("then %q, want %q", got, want)
		}
		some := newFollower(subject{job: "a", prefix: true, ranks: []report.Span{{From: 9, To: 9}, {From: 2, To: 2}}}, func() {})
		for _, rank := range []int{2, 9} {
			some.take(report.LogChunk{LogPosition: report.LogPosition{Rank: rank, Stream: 1}, WorldSize: 100, Data: []byte("up\n")})
		}
		some.take(report.LogChunk{LogPosition: report.LogPosition{Rank: 9, Stream: 2}, WorldSize: 100, Data: []byte("last\n")})
		some.flush()
		if got, want := strings.Join(some.seen().lines, "|"), "[r2,9] up|[r9] last"; got != want {
			t.Errorf("of some ranks %q, want %q", got, want)
		}
	})
}

// TestAttempts: the attempts show each start of a job and the reason of its end, and lead back to
// the present attempt.
func TestAttempts(t *testing.T) {
	s := simulated(t, &viewtest.Cluster{Nodes: 2, Slow: -1}, "enter", "a")
	var got []string
	for i := range s.rows.n {
		got = append(got, strings.Join(s.rows.row(i).cells, " | "))
	}
	want := []string{
		"1 | 1m42s ago | 1m42s | 16 ranks run",
		"0 | 10m00s ago | 8m18s | gpu-lost: rank 3 on gpu0000 (gpu 3) exited with code 1: the GPU is lost (Xid 79)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	s.press("j")
	if n := len(s.moments()); n != 4 {
		t.Errorf("attempt 0 has %d events", n)
	}
	if of, _ := s.picture.subject(s.chosen()); of.attempt != 0 || !of.past {
		t.Errorf("the log is %+v", of)
	}
	if s.press("enter"); s.focus != eventPane {
		t.Errorf("enter goes to %d, not to the events", s.focus)
	}
	for _, key := range []string{"tab", "tab", "k", "enter"} {
		s.press(key)
	}
	if want := (place{job: "llama-70b", rank: noRank}); s.current() != want || len(s.trail) != 2 {
		t.Errorf("the newest attempt is at %+v, %d deep", s.current(), len(s.trail))
	}
}

func TestSubject(t *testing.T) {
	s := simulated(t, &viewtest.Cluster{Nodes: 16, Slow: 5})
	for _, c := range []struct {
		at   place
		name string
		n    int
	}{
		{place{job: "llama-70b", rank: noRank}, "the worst 16 of 112 ranks", 16},
		{place{job: "llama-70b", node: "gpu0001", rank: noRank}, "8 ranks", 8},
		{place{job: "llama-70b", node: "gpu0001", rank: 9}, "rank 9", 1},
		{place{node: "gpu0001", rank: noRank}, "8 ranks", 8},
		{place{job: "eval-nightly", rank: noRank}, "all ranks", 0},
	} {
		if of, some := s.picture.subject(c.at); !some || of.name != c.name || len(of.ranks) != c.n {
			t.Errorf("of %+v it is %+v", c.at, of)
		}
	}
	if _, some := s.picture.subject(everything); some {
		t.Error("nothing is chosen, and there is a log")
	}
}

func TestSurroundings(t *testing.T) {
	for vars, want := range map[string]Look{
		"": {Dumb: true}, "TERM=dumb": {Dumb: true}, "TERM=xterm": {}, "TERM=xterm NO_COLOR=1": {Plain: true}, "TERM=xterm NO_COLOR=": {},
		"TERM=xterm LANG=C": {ASCII: true}, "TERM=xterm LANG=C LC_ALL=en_US.UTF-8": {}, "TERM=xterm LC_CTYPE=POSIX LANG=de_DE.utf8": {ASCII: true},
	} {
		if got := Surroundings(strings.Fields(vars)); got != want {
			t.Errorf("%q: %+v", vars, got)
		}
	}
}

// large is a cluster of ten thousand ranks.
func large(b *testing.B) *view.State {
	c := &viewtest.Cluster{Nodes: 1429, Slow: 5, Began: time.Now().Add(-10 * time.Minute)}
	m := view.New(map[string]view.Source{"10.0.0.1:29400": c}, view.Options{})
	ctx := b.Context()
	go m.Run(ctx)
	if err := m.Ready(ctx); err != nil {
		b.Fatal(err)
	}
	Settled(ctx, m)
	s := m.State()
	if n := len(s.Job("llama-70b").Ranks); n < 10_000 {
		b.Fatalf("%d ranks", n)
	}
	return s
}

// BenchmarkFrame draws ten thousand ranks, as when a key is pressed.
func BenchmarkFrame(b *testing.B) {
	s := pictured(NewPicture(large(b)), "j", "enter", "n").sized(200, 50)
	s.themes = Themes()
	for b.Loop() {
		s.frame()
	}
}

// BenchmarkPicture takes a new state of ten thousand ranks and draws it. Top does this four times a
// second at most.
func BenchmarkPicture(b *testing.B) {
	state := large(b)
	s := pictured(NewPicture(state), "j", "enter", "n").sized(200, 50)
	s.themes = Themes()
	for b.Loop() {
		s.show(NewPicture(state))
		s.frame()
	}
}

// TestLastAttempt: the last attempt of a failed job has the job's failure.
func TestLastAttempt(t *testing.T) {
	now := time.Unix(1e6, 0)
	j := &view.Job{JobStatus: report.JobStatus{
		ID: "a", Phase: "finished", Finished: now, Result: &report.Result{Ending: report.EndBudget, Reason: "rank 0 exited with code 3"},
		History: []report.Moment{{At: now.Add(-time.Minute), To: "starting", Reason: "attempt 0 starts"}},
	}}
	s := pictured(NewPicture(&view.State{At: now, Jobs: []*view.Job{j}}), "a")
	if r := s.rows.row(0); r.level != Bad || r.cells[3] != "rank 0 exited with code 3" {
		t.Errorf("%+v", r)
	}
}

// TestOutput: a rank that has written nothing has no last line.
func TestOutput(t *testing.T) {
	r := &view.Rank{Job: "a", Now: report.Unmeasured()}
	r.Now.Lines, r.Now.LogBytes, r.Now.SilenceAge = 0, 0, 13
	j := &view.Job{JobStatus: report.JobStatus{ID: "a", Phase: "running"}, Ranks: []*view.Rank{r}}
	s := pictured(NewPicture(&view.State{At: time.Unix(1e6, 0), Jobs: []*view.Job{j}}), "enter", "enter")
	if frame := s.frame(); strings.Contains(frame, "13s") || !strings.Contains(frame, "none yet") {
		t.Error(frame)
	}
	if got := silence(&r.Now); got != "-" {
		t.Errorf("the table has %s", got)
	}
	r.Now.Lines, r.Now.LogBytes = 1, 9
	s.show(NewPicture(&view.State{At: time.Unix(1e6, 0), Jobs: []*view.Job{j}}))
	if frame := s.frame(); !strings.Contains(frame, "13s ago") {
		t.Error(frame)
	}
}

// TestMeasureIsSeen: the key that changes the measure brings a hidden heat map back, and keys
// without use beside the log are not offered.
func TestMeasureIsSeen(t *testing.T) {
	s := simulated(t, &viewtest.Cluster{Nodes: 16, Slow: -1}, "j", "j", "enter", "l").sized(80, 24)
	if frame := s.frame(); strings.Contains(frame, "GPU use") || strings.Contains(frame, "enter into") {
		t.Error(frame)
	}
	s.press("m")
	if frame := s.frame(); !strings.Contains(frame, "GPU use") || !strings.Contains(frame, "enter into") {
		t.Error(frame)
	}
}
