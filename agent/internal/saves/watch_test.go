package saves

import (
	"archive/zip"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/process/proc"
)

// bed watches the process of this test.
type bed struct {
	*Watch
	t   *testing.T
	all chan job.Saved
	io  uint64
}

func watch(t *testing.T, dir string, places *Places) *bed {
	b := &bed{t: t, all: make(chan job.Saved, 100)}
	b.Watch = New(Options{
		Base: job.Saved{Node: "n1"}, Ranks: 1, Dir: dir, Places: places, Report: func(ev job.Saved) { b.all <- ev },
	})
	return b
}

// look makes the watch see that this process has written something.
func (b *bed) look() {
	b.io++
	b.Look([]proc.Member{{PID: os.Getpid(), IO: b.io}})
}

// next waits for a report.
func (b *bed) next(state job.SaveState, path string) job.Saved {
	b.t.Helper()
	select {
	case ev := <-b.all:
		if ev.State != state || ev.Path != path || ev.Node != "n1" {
			b.t.Fatalf("got %v (%s), want %s of %s", ev, ev.Why, state, path)
		}
		return ev
	case <-time.After(20 * time.Second):
		b.t.Fatalf("no report of %s being %s", path, state)
		return job.Saved{}
	}
}

// none checks that nothing else was reported before the end.
func (b *bed) none() {
	b.t.Helper()
	b.Stop()
	if len(b.all) > 0 {
		b.t.Error("reported too:", <-b.all)
	}
}

// create begins a checkpoint. finish writes the rest of it.
func create(t *testing.T, path string) (finish func()) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	w, err := z.CreateHeader(&zip.FileHeader{Name: "data.pkl"})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(w, strings.Repeat("x", 100))
	if err := z.Flush(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := z.Close(); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestASaveIsSeenAndProved(t *testing.T) {
	places := NewPlaces()
	b := watch(t, "", places)
	path := filepath.Join(t.TempDir(), "ckpt_120.pt")
	finish := create(t, path)
	b.look()
	if ev := b.next(job.SaveBegan, path); ev.Step != 120 {
		t.Error(ev)
	}
	finish()
	if ev := b.next(job.SaveComplete, path); ev.Step != 120 || ev.Bytes < 100 || ev.Format != "file" || ev.Shared || ev.Took <= 0 || ev.Took > time.Minute {
		t.Errorf("%+v", ev)
	}
	if dirs := places.list(); len(dirs) != 1 || dirs[0].dir != filepath.Dir(path) {
		t.Error(dirs)
	}
	b.none()
	// The next attempt knows the directory, and saves between two looks.
	b = watch(t, "", places)
	path = filepath.Join(filepath.Dir(path), "ckpt_130.pt")
	create(t, path)()
	b.Stop()
	if ev := b.next(job.SaveComplete, path); ev.Step != 130 {
		t.Error(ev)
	}
}

func TestAnAbandonedSave(t *testing.T) {
	b := watch(t, "", NewPlaces())
	path := filepath.Join(t.TempDir(), "step-7")
	finish := create(t, filepath.Join(path, "__0_0.distcp"))
	b.look()
	b.next(job.SaveBegan, path)
	finish()
	b.Stop()
	if ev := b.next(job.SavePartial, path); !strings.Contains(ev.Why, ".metadata is missing") {
		t.Error(ev.Why)
	}
}

// TestARemovedSave checks that a removed checkpoint is not reported as incomplete: the program may
// have removed it on purpose.
func TestARemovedSave(t *testing.T) {
	b := watch(t, "", NewPlaces())
	path := filepath.Join(t.TempDir(), "ckpt_7.pt")
	finish := create(t, path)
	b.look()
	b.next(job.SaveBegan, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	finish()
	b.Stop()
	if ev := b.next(job.SaveUnknown, path); !strings.Contains(ev.Why, "no such file") {
		t.Error(ev.Why)
	}
}

// TestHurry has ranks that will be stopped while they write a checkpoint with a temporary name.
func TestHurry(t *testing.T) {
	b := watch(t, "", NewPlaces())
	dir := t.TempDir()
	path := filepath.Join(dir, "step_7")
	finish := create(t, filepath.Join(dir, "tmp_step_7", "model.pt"))
	seen := make(chan int, 1)
	b.Hurry(time.Now().Add(time.Hour), func() { seen <- len(b.all) })
	b.look()
	select {
	case reports := <-seen:
		if reports != 1 {
			t.Errorf("it has %d reports when it says that what is in flight is reported", reports)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the watch does not say that it has reported what is in flight")
	}
	b.next(job.SaveBegan, path)
	finish()
	if err := os.Rename(filepath.Join(dir, "tmp_step_7"), path); err != nil {
		t.Fatal(err)
	}
	b.next(job.SaveComplete, path)
	b.none()
}

// TestUnmarked has a format that golaunch does not know, in a directory that the user names.
func TestUnmarked(t *testing.T) {
	dir := t.TempDir()
	b := watch(t, dir, NewPlaces())
	path := filepath.Join(dir, "mine")
	finish := create(t, filepath.Join(path, "weights.dat"))
	other := create(t, filepath.Join(t.TempDir(), "ckpt_1.pt")) // a file outside the user's directory, which must not be reported
	defer other()
	b.look()
	b.next(job.SaveBegan, path)
	finish()
	if ev := b.next(job.SaveComplete, path); ev.Format != "other" {
		t.Error(ev)
	}
	b.none()
}

// TestALink has a user's directory that is reached through a link, and that does not exist at first.
// The checkpoint there has a temporary name.
func TestALink(t *testing.T) {
	dir, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		b := watch(t, filepath.Join(link, "ck"), NewPlaces())
		synctest.Wait()
		path := filepath.Join(dir, "ck", "mine")
		finish := create(t, filepath.Join(path+".tmp", "weights.dat"))
		b.look()
		b.next(job.SaveBegan, path)
		finish()
		if err := os.Rename(path+".tmp", path); err != nil {
			t.Fatal(err)
		}
		if ev := b.next(job.SaveComplete, path); ev.Format != "other" {
			t.Error(ev)
		}
		b.none()
	})
}

// TestOldOnes checks that checkpoints from before the job are not reported.
func TestOldOnes(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "ckpt_9.pt")
	create(t, old)()
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	b := watch(t, dir, NewPlaces())
	b.none()
}

func TestWritten(t *testing.T) {
	dir := t.TempDir()
	w, err := os.Create(filepath.Join(dir, "w"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r, err := os.Open(w.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	read, err := os.Create(filepath.Join(dir, "gone"))
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	if err := os.Remove(read.Name()); err != nil {
		t.Fatal(err)
	}
	found := slices.DeleteFunc(written(os.Getpid()), func(file string) bool { return filepath.Dir(file) != dir })
	if !slices.Equal(found, []string{w.Name()}) {
		t.Error(found)
	}
}

// TestAtRest counts how often the watch touches the user's files in an hour of training without
// saves, although the ranks write all the time. The bound is once in 10 s.
func TestAtRest(t *testing.T) {
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "train.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	synctest.Test(t, func(t *testing.T) {
		b := watch(t, filepath.Join(dir, "ck"), NewPlaces())
		for range time.Hour / (5 * time.Second) {
			b.look()
			time.Sleep(5 * time.Second) // of virtual time
		}
		synctest.Wait()
		if n := b.disk.asked; n < 60 || n > 360 {
			t.Errorf("the watch has touched files %d times", n)
		}
		b.none()
	})
}

// TestAHungFileServer checks that a hung file server delays the end of an attempt, and so the
// restart, by only one answer. If it has hung before, it does not delay the end at all.
func TestAHungFileServer(t *testing.T) {
	for before, want := range map[time.Duration]time.Duration{0: answerLimit, time.Minute: 0} {
		synctest.Test(t, func(t *testing.T) {
			b := watch(t, "", NewPlaces())
			hung := make(chan bool)
			b.disk.ask(func() answer { <-hung; return answer{} })
			time.Sleep(before)
			begun := time.Now()
			b.Stop()
			if took := time.Since(begun); took != want {
				t.Errorf("a file server that has hung for %v delays the end by %v, want %v", before, took, want)
			}
			close(hung)
		})
	}
}

// TestPartsOfNodes has nodes with disks of their own. A node must not prove its part before each
// other node has had the time to report that it writes one.
func TestPartsOfNodes(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, all: make(chan job.Saved, 100)}
		b.Watch = New(Options{Base: job.Saved{Node: "n1"}, Ranks: 2, Nodes: 2, Places: NewPlaces(), Report: func(ev job.Saved) { b.all <- ev }})
		begun := time.Now()
		path := filepath.Join(dir, "ckpt_7.pt")
		finish := create(t, path)
		b.look()
		b.next(job.SaveBegan, path)
		finish()
		b.next(job.SaveComplete, path)
		if took := time.Since(begun); took < lookEvery+time.Second || took > lookEvery+2*time.Second {
			t.Errorf("it is complete after %v", took)
		}
		b.none()
	})
}
