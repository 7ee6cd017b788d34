package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/alert"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view/viewtest"
	"github.com/golaunch/golaunch/launcher/report"
)

// stateOfCluster returns the state of a model of a cluster after some seconds.
func stateOfCluster(t testing.TB, c *viewtest.Cluster, after time.Duration) (first, last *view.State) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := view.New(map[string]view.Source{"here": c}, view.Options{History: 2 * time.Minute})
	done := make(chan struct{})
	go func() {
		m.Run(ctx)
		close(done)
	}()
	synctest.Wait()
	first = m.State()
	time.Sleep(after) // takes no time in a synctest bubble
	synctest.Wait()
	last = m.State()
	cancel()
	<-done
	return first, last
}

// TestSize: a page of 1,000 nodes of 8 ranks is under 1 MiB, and the changes in a second are far
// smaller than the whole page.
func TestSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, last := stateOfCluster(t, &viewtest.Cluster{Nodes: 1000, Slow: -1, Began: time.Now().Add(-time.Hour), Every: time.Second}, time.Second)
		for _, q := range []query{{page: "cluster"}, {"job", "llama-70b", "step_time"}, {page: "node", name: "gpu0000"}} {
			before, now := alert.NewPicture(first), alert.NewPicture(last)
			all := newParts(q, before).since(nil)
			change := newParts(q, now).since(newParts(q, before))
			if !json.Valid(all) || !json.Valid(change) || bytes.ContainsAny(all, "\n<>") {
				t.Errorf("%v is no JSON in one line without markup", q)
			}
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			_, _ = z.Write(change)
			z.Close()
			t.Logf("%-8s %7d bytes, then %7d a second (%d packed)", q.page, len(all), len(change), packed.Len())
			if len(all)+maxRows*maxSlots*4/3 > 1<<20 || len(change) > len(all) {
				t.Errorf("%v has %d bytes without its heat map, and then %d", q, len(all), len(change))
			}
		}
	})
}

// TestSince: applying the changes gives the current state.
func TestSince(t *testing.T) {
	part := rapid.SampledFrom([]string{"1", `"a"`, "[]", "{}"})
	some := rapid.MapOf(rapid.SampledFrom([]string{"a", "b", "c.d"}), part)
	made := func(m map[string]string) parts {
		p := parts{}
		for name, body := range m {
			p[name] = json.RawMessage(body)
		}
		return p
	}
	rapid.Check(t, func(t *rapid.T) {
		before, after := made(some.Draw(t, "before")), made(some.Draw(t, "after"))
		var changes map[string]json.RawMessage
		if err := json.Unmarshal(after.since(before), &changes); err != nil {
			t.Fatal(err)
		}
		for name, body := range changes {
			if string(body) == "null" {
				delete(before, name)
			} else if before[name] = body; !bytes.Equal(after[name], body) {
				t.Errorf("%s is sent as %s", name, body)
			}
		}
		if string(after.since(before)) != "{}" {
			t.Errorf("%s is left", after.since(before))
		}
	})
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		v      float64
		digits int
		want   string
	}{
		{math.NaN(), 3, "null"},
		{math.Inf(1), whole, "null"},
		{0, 3, "0"},
		{0.97251, 3, "0.973"},
		{71e9, 3, "7.1e+10"},
		{2.5, whole, "3"},
		{-0.4, whole, "0"},
		{1e14, whole, "100000000000000"},
		{1e300, whole, "1e+300"},
		{612.34, 4, "612.3"},
	} {
		if got := string(appendNumber(nil, c.v, c.digits)); got != c.want || !json.Valid([]byte(got)) {
			t.Errorf("%v with %d digits is %s, want %s", c.v, c.digits, got, c.want)
		}
	}
}

// TestNoNumber: if the goodput and the checkpoints of a job have a number that is NaN or infinite,
// the job is shown without them.
func TestNoNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, v := range []float64{0.5, math.NaN(), math.Inf(1)} {
			s, _ := stateOfCluster(t, &viewtest.Cluster{Nodes: 2, Slow: -1, Began: time.Now().Add(-time.Hour), Every: time.Second}, 0)
			of := alert.NewPicture(s)
			j := of.Job("llama-70b")
			goodput, saves := *j.JobStatus.Goodput, *j.Saves
			goodput.Costs, saves.AtRisk = append(slices.Clone(goodput.Costs), report.Cost{Lost: v}), v
			j.JobStatus.Goodput, j.Saves = &goodput, &saves
			all := newParts(query{"job", "llama-70b", "step_time"}, of)
			var shown struct{ Ledger, Saves any }
			if err := json.Unmarshal(all["job"], &shown); err != nil {
				t.Fatalf("%v: %s: %v", v, all["job"], err)
			}
			if known := v == 0.5; (shown.Ledger != nil) != known || (shown.Saves != nil) != known || all["history"] == nil {
				t.Errorf("%v is shown as %s", v, all["job"])
			}
		}
	})
}

// TestText: text returns one line without anything that a terminal or a browser would act on.
func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"a\x1b[31mred\x1b[0m": "ared", "title\x1b]0;x\a": "title^[]0;x^G", "a\nb": "a^Kb", "<b>": "<b>", "bad\xff": "bad\ufffd",
		"n1\u202e7n\u2066": "n1\ufffd7n\ufffd",
	} {
		if got := text(in, 20); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
	if got := text(strings.Repeat("é", 11), 10); got != strings.Repeat("é", 9)+"…" {
		t.Errorf("%q", got)
	}
	if got := paragraph("a\x1b[1m\nb\n", 100); got != "a\nb\n" {
		t.Errorf("%q", got)
	}
}

// ranksOf have step times, one a slot; NaN has no sample.
func ranksOf(times [][]float64) []*view.Rank {
	var all []*view.Rank
	for i, row := range times {
		r := &view.Rank{Rank: i}
		for at, v := range row {
			if math.IsNaN(v) {
				continue
			}
			r.Samples = append(r.Samples, report.Sample{At: time.Unix(1000, 0).Add(time.Duration(at) * slot), Usage: report.Usage{StepTime: v}})
		}
		all = append(all, r)
	}
	return all
}

// TestHeat: one slow rank is visible, no matter how many ranks share a row.
func TestHeat(t *testing.T) {
	for _, n := range []int{1, 2, maxRows, maxRows + 1, 5000} {
		times := make([][]float64, n)
		for i := range times {
			times[i] = []float64{0.4, 0.4, 0.4}
		}
		times[n-1] = []float64{0.4, 0.8, 0.4}
		h := newHeat(ranksOf(times), "step_time")
		if h.Slots != 2 || h.Rows > maxRows || h.Rows*h.Each < n || len(h.Cells) != h.Rows*h.Slots {
			t.Fatalf("%d ranks: %d slots, %d rows of %d", n, h.Slots, h.Rows, h.Each)
		}
		if slow := h.Cells[len(h.Cells)-1]; n > 2 && slow != 255 || float64(h.Most[1]) != 0.8 {
			t.Errorf("%d ranks: the slow one is %d in %v", n, slow, h.Most)
		}
		if calm := h.Cells[0]; n > 2 && (calm < 5 || calm > 60) {
			t.Errorf("%d ranks: the others are %d", n, calm)
		}
	}
}

// TestHeatOfAnything: no samples, holes and strange values make a map that a page can draw.
func TestHeatOfAnything(t *testing.T) {
	value := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), 0, -1, 0.4}))
	rapid.Check(t, func(t *rapid.T) {
		times := rapid.SliceOfN(rapid.SliceOfN(value, 0, 5), 0, 20).Draw(t, "times")
		for meter := range meters {
			h := newHeat(ranksOf(times), meter)
			if len(h.Cells) != h.Rows*h.Slots || len(h.Median) != h.Slots || h.Slots < 0 || h.Slots > maxSlots {
				t.Fatalf("%+v", h)
			}
			if body, err := json.Marshal(h); err != nil || !json.Valid(body) {
				t.Fatalf("%v: %s", err, body)
			}
		}
	})
}

// TestTail: a tail keeps the newest whole lines, and counts the others.
func TestTail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 5).Draw(t, "most")
		written := rapid.SliceOfN(rapid.StringMatching(`[a-c]{0,3}\n?`), 0, 40).Draw(t, "written")
		tail := newTail(most)
		tail.read(func(yield func(report.LogChunk, error) bool) {
			for _, w := range written {
				if !yield(report.LogChunk{LogPosition: report.LogPosition{Rank: 1, Stream: 1}, Data: []byte(w)}, nil) {
					return
				}
			}
		})
		want := strings.Split(strings.Join(written, ""), "\n")
		if want[len(want)-1] == "" {
			want = want[:len(want)-1]
		}
		b := tail.take()
		var got []string
		for _, l := range b.Lines {
			got = append(got, l.Text)
		}
		if cut := max(0, len(want)-most); b.Skipped != cut || !slices.Equal(got, want[cut:]) || !b.Over {
			t.Fatalf("%q has %q and %d before, of %q", written, got, b.Skipped, want)
		}
	})
}

// TestFoldedTail: equal lines of several ranks are merged, different ones stay separate, and silent
// ranks delay nothing.
func TestFoldedTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tail := newTail(100)
		tail.fold(nil)
		release := make(chan struct{})
		say := func(rank int, said string) report.LogChunk {
			return report.LogChunk{LogPosition: report.LogPosition{Rank: rank, Stream: 1}, Node: "n", WorldSize: 4, Data: []byte(said)}
		}
		go tail.read(func(yield func(report.LogChunk, error) bool) {
			for rank, loss := range []string{"0.41", "0.43", "nan", "0.42"} {
				yield(say(rank, "step 7 loss="+loss+"\nlonely \x1b[31m<b>"), nil)
			}
			<-release
			yield(say(1, "\n"), nil)
			<-release
		})
		time.Sleep(time.Second) // takes no time in a synctest bubble
		synctest.Wait()
		said := func() (all []string) {
			for _, l := range tail.take().Lines {
				all = append(all, l.Who+": "+l.Text)
			}
			slices.Sort(all)
			return all
		}
		if got, want := said(), []string{"r0-1,3: step 7 loss=0.41..0.43", "r2: step 7 loss=nan"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		release <- struct{}{}
		time.Sleep(time.Second) // takes no time in a synctest bubble
		synctest.Wait()
		if got, want := said(), []string{"r1: lonely <b>"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		close(release)
		synctest.Wait()
		if got, want := said(), []string{"r0,2-3: lonely <b>"}; !slices.Equal(got, want) || !tail.take().Over {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// TestTroubleHasAnAge: the page shows that coordinators do not answer, for how long, and when they
// answer again.
func TestTroubleHasAnAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var why atomic.Pointer[string]
		c := &viewtest.Cluster{Nodes: 1, Slow: -1, Began: time.Now().Add(-time.Hour), Every: time.Second, Fails: func() error {
			if w := why.Load(); w != nil {
				if strings.HasPrefix(*w, "it was silent") {
					time.Sleep(10 * time.Second) // virtual
				}
				return errors.New(*w)
			}
			return nil
		}}
		f := newFeed(Options{Model: view.New(map[string]view.Source{"here": c}, view.Options{}), Every: time.Second})
		f.watch()
		defer f.close()
		read := func(after time.Duration) (h struct {
			Trouble string
			Known   bool
			Age     float64
		},
		) {
			time.Sleep(after) // takes no time in a synctest bubble
			synctest.Wait()
			if err := json.Unmarshal(f.page(query{page: "cluster"})["head"], &h); err != nil {
				t.Fatal(err)
			}
			return h
		}
		if h := read(2 * time.Second); h.Trouble != "" || !h.Known || h.Age != 0 {
			t.Errorf("all is well: %+v", h)
		}
		gone := "the coordinator is <gone>"
		why.Store(&gone)
		if h := read(60 * time.Second); h.Trouble != gone || h.Age < 55 || h.Age > 65 {
			t.Errorf("a minute after: %+v", h)
		}
		why.Store(nil)
		if h := read(3 * time.Second); h.Trouble != "" || h.Age != 0 {
			t.Errorf("it is back: %+v", h)
		}
		slow := "it was silent for 10s"
		why.Store(&slow)
		if h := read(12 * time.Second); h.Trouble != slow || h.Age < 9 {
			t.Errorf("12 s after it was silent: %+v", h)
		}
		why.Store(nil)
		if h := read(15 * time.Second); h.Trouble != "" || h.Age != 0 {
			t.Errorf("it is back: %+v", h)
		}
	})
}

// TestNoQuestionsWithoutClients: without clients, the model asks nothing until a client comes.
func TestNoQuestionsWithoutClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		c := &viewtest.Cluster{Nodes: 1, Slow: -1, Began: time.Now(), Every: time.Second, Fails: func() error { asked.Add(1); return nil }}
		f := newFeed(Options{Model: view.New(map[string]view.Source{"here": c}, view.Options{}), Every: time.Second})
		defer f.close()
		since := func(after time.Duration) int64 {
			before := asked.Load()
			time.Sleep(after) // takes no time in a synctest bubble
			synctest.Wait()
			return asked.Load() - before
		}
		if n := since(time.Minute); n > 0 {
			t.Errorf("%d questions before anybody watches", n)
		}
		f.watch()
		f.watch()
		f.leave()
		if n := since(time.Minute); n < 50 {
			t.Errorf("%d questions in a minute that is watched", n)
		}
		f.leave()
		since(2 * linger)
		if n := since(time.Hour); n > 0 {
			t.Errorf("%d questions in an hour without a client", n)
		}
		f.watch()
		if n := since(time.Minute); n < 50 {
			t.Errorf("%d questions when a client watches again", n)
		}
		f.leave()
	})
}

// BenchmarkPage measures the work in one second for a page of 8,000 ranks.
func BenchmarkPage(b *testing.B) {
	s := &view.State{At: time.Now(), Jobs: []*view.Job{{JobStatus: report.JobStatus{ID: "job", Ranks: 8000}}}}
	times := make([][]float64, 8000)
	for i := range times {
		times[i] = slices.Repeat([]float64{0.4}, maxSlots)
	}
	s.Jobs[0].Ranks = ranksOf(times)
	f := newFeed(Options{Every: time.Second})
	q := query{"job", "job", "step_time"}
	for b.Loop() {
		f.state = s
		f.state.At = time.Now()
		clear(f.pages)
		f.page(q)
	}
}

// TestStandstill: the page says that ranks make no progress, as top does, and then predicts no end.
func TestStandstill(t *testing.T) {
	for _, c := range []struct {
		ranks             int
		since             time.Duration
		state, level, why string
		done              bool
	}{
		{0, 0, "training", "fine", "", true},
		{1, 48 * time.Second, "training", "warn", "rank 0 on gpu0000: no heartbeat for ", true},
		{1, 4 * time.Minute, "training", "bad", "rank 0 on gpu0000: no heartbeat for 4m", true},
		{8, time.Minute, "stalled", "warn", "no heartbeat for 1m", false},
		{8, 4 * time.Minute, "stalled", "bad", "no heartbeat for 4m", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			now := time.Now()
			_, s := stateOfCluster(t, &viewtest.Cluster{Nodes: 1, Slow: -1, Began: now.Add(-time.Hour), Every: time.Second, Still: func(rank int) time.Time {
				if rank < c.ranks {
					return now.Add(-c.since)
				}
				return time.Time{}
			}}, time.Second)
			p := newParts(query{"job", "llama-70b", "step_time"}, alert.NewPicture(s))
			var j struct {
				State, Level, Why string
				Done              *int64
			}
			var whys words
			if err := errors.Join(json.Unmarshal(p["job"], &j), json.Unmarshal(p["r.why"], &whys)); err != nil {
				t.Fatal(err)
			}
			if j.State != c.state || j.Level != c.level || !strings.Contains(j.Why, c.why) || (j.Done != nil) != c.done {
				t.Errorf("%d ranks stand still for %v: %+v", c.ranks, c.since, j)
			}
			if said := whys.Words[whys.At[0]]; strings.Contains(said, "no heartbeat") != (c.ranks > 0) {
				t.Errorf("%d ranks stand still, and the text about rank 0 is %q", c.ranks, said)
			}
		})
	}
}
