package rendezvous

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/job"
)

func TestAStoreHasOneCoordinator(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = OpenStore(dir)
	if err == nil || err.Error() != "cannot open the coordinator's store "+dir+
		": another coordinator uses it; stop that one, or give this one a directory of its own with --state-dir" {
		t.Errorf("%v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestStoreOfAnotherFormat(t *testing.T) {
	for _, text := range []string{"golaunch-store-0 ABC\n", "", storeFormat + "\n", "\x00\xff"} {
		dir := t.TempDir()
		if err := os.WriteFile(dir+"/epoch", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := OpenStore(dir)
		if err == nil {
			err = errors.Join(NewCoordinator(Config{Store: s}).Host(t.Context()), s.Close())
		}
		if err == nil || !strings.Contains(err.Error(), "is not this golaunch's format") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestTornJournals has the last words of a journal be lost or garbled in all ways: what came before them counts, and what the
// agents say.
func TestTornJournals(t *testing.T) {
	cut := func(n int) func(string) string { return func(text string) string { return text[:len(text)-n] } }
	lines := func(n int) func(string) string {
		return func(text string) string {
			all := strings.SplitAfter(text, "\n")
			return strings.Join(all[:len(all)-1-n], "")
		}
	}
	for name, c := range map[string]struct {
		forge func(string) string
		whole bool
	}{
		"whole":             {cut(0), true},
		"torn":              {cut(7), false},
		"without newline":   {cut(1), false},
		"garbage appended":  {func(text string) string { return text + "\x00\x00\x00\x00" }, false},
		"a line of garbage": {func(text string) string { return text + "garbage\n{}\n" }, false},
		"unknown event": {func(text string) string {
			return text + `{"time":"2026-01-01T00:00:00Z","event":"x","detail":{}}` + "\n"
		}, false},
		"unknown field": {func(text string) string {
			return text + `{"time":"2026-01-01T00:00:00Z","event":"started","detail":{"Node":"n1","Unit":0,"Attempt":0,"X":1}}` + "\n"
		}, false},
		"garbled result": {func(text string) string {
			return text + `{"time":"2026-01-01T00:00:00Z","event":"result","detail":{"Code":0,"X":1}}` + "\n"
		}, false},
		"a second beginning": {func(text string) string { first, _, _ := strings.Cut(text, "\n"); return text + first + "\n" }, false},
		"without started":    {lines(1), true},
		"without prepared":   {lines(2), true},
		"without joined":     {lines(3), true},
		"only submitted":     {lines(4), true},
		"garbage in the middle": {func(text string) string {
			all := strings.SplitAfter(text, "\n")
			all[len(all)/2] = "\xff" + all[len(all)/2]
			return strings.Join(all, "")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			host(t, func(t *testing.T, h *hosted) {
				n1 := h.joinAs(gpus(1, 1), forever)
				h.user().submit(detached(task("a", 1, 1)))
				h.crash()
				h.forge("a", c.forge)
				h.start()
				time.Sleep(time.Minute)
				if got := strings.Contains(h.warned(), "torn or garbled and were cut off"); got == c.whole {
					t.Errorf("warned %q", h.warned())
				}
				got := n1.runs()
				if len(got) != 2 || got[0] != 'a' {
					t.Fatalf("%q run: %+v\n%s", got, h.user().job("a"), h.warned())
				}
				n1.exitJob("a", int(got[1]-'0'), 0)
				if r := h.user().watch("a").over(t); r.Code != 0 || r.Restarts > 2 {
					t.Errorf("%+v", r)
				}
				h.crash()
				h.start()
				if r := h.user().watch("a").over(t); r.Code != 0 {
					t.Errorf("from the mended journal: %+v", r)
				}
			})
		})
	}
}

// TestAstray has a journal forget a whole attempt, so that ranks live of which the new coordinator does not know.
func TestAstray(t *testing.T) {
	for name, keep := range map[string]string{
		"the attempt before runs":   `"started"`,
		"the attempt before begins": `"prepared"`,
		"nothing was begun":         `"joined"`,
		"no node was given":         `"submitted"`,
	} {
		t.Run(name, func(t *testing.T) {
			host(t, func(t *testing.T, h *hosted) {
				fails := func(attempt int) (int, bool) { return 1, attempt == 0 }
				n1, n2 := h.joinAs(gpus(1, 1), fails), h.joinAs(gpus(2, 1), fails)
				h.user().submit(detached(task("a", 2, 1)))
				time.Sleep(5 * time.Second)
				if n1.runs() != "a1" || n2.runs() != "a1" {
					t.Fatalf("%s and %s run", n1.runs(), n2.runs())
				}
				h.crash()
				h.forge("a", func(text string) string {
					var kept []string
					for line := range strings.Lines(text) {
						if kept = append(kept, line); strings.Contains(line, keep) {
							break
						}
					}
					return strings.Join(kept, "")
				})
				h.start()
				time.Sleep(2 * time.Minute)
				if n1.runs() == "" || n1.runs() != n2.runs() {
					t.Fatalf("%q and %q run: %+v", n1.runs(), n2.runs(), h.user().job("a"))
				}
				attempt := int(n1.runs()[1] - '0')
				n1.exitJob("a", attempt, 0)
				n2.exitJob("a", attempt, 0)
				if r := h.user().watch("a").over(t); r.Code != 0 {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

// TestForgottenJob has ranks of a job that no journal knows: they end before their node is used.
func TestForgottenJob(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 1), forever)
		u := h.user()
		u.submit(detached(task("a", 1, 1)))
		b := u.submit(detached(task("b", 1, 1)))
		h.crash()
		if err := os.Remove(h.journal("a")); err != nil {
			t.Fatal(err)
		}
		h.start()
		time.Sleep(5 * time.Second)
		if got := n1.runs(); got != "b0" {
			t.Errorf("%q run", got)
		}
		if r := n1.finished["a"]; r.Code != 125 || r.Reason != "the coordinator does not know this job" {
			t.Errorf("n1 heard %+v", r)
		}
		n1.exitJob("b", 0, 0)
		if r := b.over(t); r.Code != 0 {
			t.Errorf("%+v", r)
		}
	})
}

func TestHeadlessJournals(t *testing.T) {
	line := func(event, detail string) string {
		return fmt.Sprintf(`{"time":"2026-01-01T00:00:00Z","event":%q,"detail":%s}`+"\n", event, detail)
	}
	for name, text := range map[string]string{
		"empty": "", "no submission": line("submitted", "{}"), "torn": line("submission", `{"Job":{"ID":"x"}}`)[:30],
		"another job's": line("submission", `{"Job":{"ID":"y"}}`), "binary": "\x00\x01\x02\n",
	} {
		t.Run(name, func(t *testing.T) {
			host(t, func(t *testing.T, h *hosted) {
				h.joinAs(gpus(1, 1), forever)
				h.crash()
				if err := os.WriteFile(h.journal("x"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				h.start()
				want(t, h.warned(), "the journal does not begin with a job; its job is forgotten", "x.job.jsonl.unreadable")
				kept, err := os.ReadFile(h.journal("x") + ".unreadable")
				if err != nil || string(kept) != text {
					t.Errorf("%q, %v", kept, err)
				}
				time.Sleep(10 * time.Second)
				if s := h.user().submit(detached(task("x", 1, 1))); !strings.Contains(s.all(), "attempt 0 runs") {
					t.Error(s.all())
				}
			})
		})
	}
}

// TestAJournalThatEndsEarly is removed, and its job goes on.
func TestAJournalThatEndsEarly(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*diskJournal)
		want  string
	}{
		"full":    {func(j *diskJournal) { j.out.size = maxJournal - 10 }, "it has reached its limit of 64 MiB"},
		"no disk": {func(j *diskJournal) { j.shut() }, "file already closed"},
	} {
		t.Run(name, func(t *testing.T) {
			host(t, func(t *testing.T, h *hosted) {
				n1 := h.joinAs(gpus(1, 1), forever)
				a := h.user().submit(detached(task("a", 1, 1)))
				h.c.post(func() { c.spoil(h.c.jobs["a"].journal.(*diskJournal)) })
				synctest.Wait()
				n1.exitJob("a", 0, 1)
				time.Sleep(5 * time.Second)
				if got := n1.runs(); got != "a1" {
					t.Errorf("%q run", got)
				}
				want(t, h.warned(), "the journal of job a ends here: ", c.want, "the job goes on, but ends with this coordinator")
				if _, err := os.Stat(h.journal("a")); !os.IsNotExist(err) {
					t.Errorf("the journal is still there: %v", err)
				}
				n1.exitJob("a", 1, 0)
				if r := a.over(t); r.Code != 0 {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

// journalOf is a sound journal.
func journalOf(t testing.TB) []byte {
	var b bytes.Buffer
	w := writer{w: &b}
	at := time.Unix(1_700_000_000, 0).UTC()
	s := filled[Submission]()
	s.Observe, s.Journal = nil, nil
	entries := []entry{{at, eventSubmission, "", s}}
	for _, ev := range []job.Event{
		filled[job.Submitted](), filled[job.Queued](), filled[job.Joined](), filled[job.Lost](), filled[job.Rejoined](), filled[job.Prepared](),
		filled[job.Reached](), filled[job.Started](), filled[job.Exited](), filled[job.Stopped](), filled[job.Elapsed](), filled[job.TimedOut](), filled[job.Cancel](),
	} {
		entries = append(entries, entry{at, eventName(ev), "because", ev})
	}
	for _, e := range append(entries, entry{at, eventResult, "", filled[job.Result]()}) {
		if err := w.write(e); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// TestJournalsAreRead holds that every event comes back as it was.
func TestJournalsAreRead(t *testing.T) {
	text := journalOf(t)
	var j saved
	good, err := j.read(bytes.NewReader(text))
	if err != nil || int(good) != len(text) || len(j.events) != 13 || j.result == nil || j.reason != "because" {
		t.Fatalf("%d bytes of %d, %d events, %v", good, len(text), len(j.events), err)
	}
	for n := range len(text) { // as much as the disk has got of it
		var torn saved
		good, err := torn.read(bytes.NewReader(text[:n]))
		whole := bytes.LastIndexByte(text[:n], '\n') + 1
		if (err != nil) != (whole == 0) || int(good) != whole || len(torn.events) != max(0, bytes.Count(text[:n], []byte("\n"))-1) || torn.result != nil {
			t.Fatalf("of the first %d bytes, %d have %d events, %v", n, good, len(torn.events), err)
		}
	}
	s := filled[Submission]()
	s.Observe, s.Journal = nil, nil
	if got, want := fmt.Sprintf("%+v", j.Submission), fmt.Sprintf("%+v", s); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for i, want := range []job.Event{2: filled[job.Joined](), 6: filled[job.Reached](), 8: filled[job.Exited](), 12: filled[job.Cancel]()} {
		if want != nil && fmt.Sprintf("%+v", j.events[i]) != fmt.Sprintf("%+v", want) {
			t.Errorf("got  %+v\nwant %+v", j.events[i], want)
		}
	}
}

// FuzzJournal holds that reading never panics, and never takes a line after a bad one: what was taken reads the same alone.
func FuzzJournal(f *testing.F) {
	text := journalOf(f)
	lines := bytes.SplitAfter(text, []byte("\n"))
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Add(append(bytes.Clone(lines[0]), lines[0]...))
	f.Add(bytes.Join([][]byte{lines[0], lines[1], []byte("garbage\n"), lines[2]}, nil))
	f.Add(bytes.Join([][]byte{lines[0], lines[14], lines[3]}, nil))
	f.Add([]byte("{}\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		var j, again, one saved
		good, err := j.read(bytes.NewReader(text))
		if (err != nil) != (good == 0) || good > int64(len(text)) {
			t.Fatalf("%d bytes of %d, %v", good, len(text), err)
		}
		if err != nil {
			return
		}
		if text[good-1] != '\n' || j.submitted.IsZero() {
			t.Fatalf("%q ends no line, or begins no job", text[:good])
		}
		same, err := again.read(bytes.NewReader(text[:good]))
		if err != nil || same != good || len(again.events) != len(j.events) {
			t.Fatalf("%d bytes, then %d: %v", good, same, err)
		}
		next, _, whole := bytes.Cut(text[good:], []byte("\n"))
		if _, err := one.read(bytes.NewReader(text[:good])); err != nil {
			t.Fatal(err)
		}
		if whole && one.take(append(next, '\n')) == nil {
			t.Fatalf("%q was left out", next)
		}
	})
}
