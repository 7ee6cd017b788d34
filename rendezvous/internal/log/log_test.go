package log

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// disk is a storage that keeps or refuses a round when the test says so.
type disk struct {
	shared   bool
	snapshot []byte
	entries  [][]byte
	round    *Round
	done     func(error)
	asked    int
}

func (d *disk) Shared() bool { return d.shared }

func (d *disk) Keep(r Round, done func(error)) { d.round, d.done = &r, done }

func (d *disk) Confirm(done func(error)) { d.asked, d.done = d.asked+1, done }

// end ends the round under way, if there is one.
func (d *disk) end(err error) {
	if d.done == nil {
		return
	}
	if r := d.round; r != nil && err == nil {
		if r.Snapshot != nil {
			d.snapshot, d.entries = r.Snapshot, nil
		}
		d.entries = append(d.entries, r.Entries...)
	}
	done := d.done
	d.round, d.done = nil, nil
	done(err)
}

// sum is a state that consists of the entries that led to it, in order.
type sum []uint64

func (s sum) encode() (b []byte) {
	for _, n := range s {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

func (d *disk) replay() (s sum) {
	for b := d.snapshot; len(b) > 0; b = b[8:] {
		s = append(s, binary.BigEndian.Uint64(b))
	}
	for _, e := range d.entries {
		s = append(s, binary.BigEndian.Uint64(e))
	}
	return s
}

// TestLog checks, over random rounds, that effects are visible only after their entry is kept, and
// in the order of the entries. It checks that no entry with visible effects is lost, and that the
// kept log always leads to a state that existed.
func TestLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &disk{shared: rapid.Bool().Draw(t, "shared")}
		var state sum
		lost := false
		l := New(Config{
			Storage: d, Post: func(f func()) bool { f(); return true }, Snapshot: func() []byte { return state.encode() },
			Warn: func(error) {}, Lost: func(error) { lost = true },
		}, 0)
		seen, vouched := 0, 0
		for range rapid.IntRange(1, 60).Draw(t, "acts") {
			switch rapid.IntRange(0, 6).Draw(t, "act") {
			case 0, 1:
				state = append(state, uint64(len(state)))
				l.Append(binary.BigEndian.AppendUint64(nil, uint64(len(state)-1)), false)
				n := len(state)
				l.Then(func() {
					if n <= seen {
						t.Fatalf("entry %d is seen after entry %d", n, seen)
					}
					if seen = n; !l.broken && len(d.replay()) < n {
						t.Fatalf("entry %d is seen, and %d are kept", n, len(d.replay()))
					}
				})
			case 2:
				n := vouched + 1
				l.Vouch(func() { vouched = max(vouched, n) })
				if !d.shared && vouched < n {
					t.Fatal("a lease waits for a file")
				}
			case 3:
				l.Flush()
			case 4:
				d.end(nil)
			case 5:
				l.Compact()
			case 6:
				if d.shared && rapid.Bool().Draw(t, "ousted") {
					d.end(errors.New("another leads"))
				} else if !d.shared {
					l.late(l.number)
				}
			}
			if kept := d.replay(); !slices.Equal(kept, state[:min(len(kept), len(state))]) {
				t.Fatalf("kept is %v of %v", kept, state)
			}
			if lost && l.Busy() {
				t.Fatal("a log that is lost is at work")
			}
		}
		for range 4 {
			l.Flush()
			d.end(nil)
		}
		if kept := d.replay(); !lost && (len(kept) != len(state) || seen != len(state)) {
			t.Fatalf("%d of %d entries are kept, %d are seen", len(kept), len(state), seen)
		}
	})
}

// TestSnapshotsKeepALogShort checks that a log does not grow much longer than the state.
func TestSnapshotsKeepALogShort(t *testing.T) {
	d := &disk{}
	state := bytes.Repeat([]byte("s"), 1<<20)
	l := New(Config{Storage: d, Post: func(f func()) bool { f(); return true }, Snapshot: func() []byte { return state }}, 0)
	entry := make([]byte, 10<<10)
	for range 10_000 {
		l.Append(entry, false)
		l.Flush()
		d.end(nil)
		if size := len(d.snapshot) + len(d.entries)*len(entry); size > minGrown+len(state)+len(entry) {
			t.Fatalf("%d bytes are kept of a state of %d", size, len(state))
		}
	}
}

// TestAFullQueue checks that a queue does not grow without bound.
func TestAFullQueue(t *testing.T) {
	d, warnings := &disk{}, 0
	l := New(Config{
		Storage: d, Post: func(f func()) bool { f(); return true }, Snapshot: func() []byte { return nil }, Warn: func(error) { warnings++ },
	}, 0)
	seen := false
	l.Append([]byte("first"), false)
	l.Flush()
	l.Then(func() { seen = true })
	for n := 0; !seen; n++ {
		if n > maxSize>>20 {
			t.Fatalf("%d MiB wait", n)
		}
		l.Append(make([]byte, 1<<20), false)
	}
	if warnings != 1 || !l.broken {
		t.Errorf("%d warnings", warnings)
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	keep := func(r Round) {
		t.Helper()
		f, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Past(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		f.Keep(r, func(err error) { done <- err })
		if err := errors.Join(<-done, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	check := func(snapshot string, entries ...string) {
		t.Helper()
		text, err := os.ReadFile(dir + "/log")
		if err != nil {
			t.Fatal(err)
		}
		p, err := Parse(text)
		if err != nil || string(p.Snapshot) != snapshot || strings.Join(texts(p.Entries), " ") != strings.Join(entries, " ") {
			t.Errorf("%q, %q, %v; want %q, %q", p.Snapshot, p.Entries, err, snapshot, entries)
		}
	}
	keep(Round{Entries: [][]byte{[]byte("a"), []byte("b")}, Durable: true})
	check("", "a", "b")
	keep(Round{Entries: [][]byte{[]byte("c")}})
	check("", "a", "b", "c")
	keep(Round{Snapshot: []byte("abc"), Entries: [][]byte{[]byte("d")}})
	check("abc", "d")
	keep(Round{Entries: [][]byte{[]byte("e")}})
	check("abc", "d", "e")
	if names, err := os.ReadDir(dir); err != nil || len(names) != 2 {
		t.Errorf("%v, %v", names, err)
	}
}

// TestAFileAfterAMount opens a log on the volume of a pod with an fsGroup. At each mount, kubelet
// makes everything there writable for the group.
func TestAFileAfterAMount(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	open := func() (Past, error) {
		f, err := Open(dir)
		if err != nil {
			return Past{}, err
		}
		p, err := f.Past()
		done := make(chan error, 1)
		f.Keep(Round{Entries: [][]byte{[]byte("a")}}, func(err error) { done <- err })
		return p, errors.Join(err, <-done, f.Close())
	}
	if _, err := open(); err != nil {
		t.Fatal(err)
	}
	kubelet := exec.Command("sh", "-c", `chmod -R g+rwX "$1" && chmod g+s "$1"`, "sh", dir)
	if text, err := kubelet.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if p, err := open(); err != nil || len(p.Entries) != 1 {
		t.Errorf("%q, %v", p.Entries, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := errors.Join(os.Remove(dir+"/log"), unix.Mkfifo(dir+"/log", 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := open(); err == nil || !strings.Contains(err.Error(), "is not a plain file") {
		t.Errorf("what another has put there: %v", err)
	}
}

// TestADirectoryMadeByHand opens a log in a directory that was made with a umask of 002, the usual
// umask of users who have a group of their own.
func TestADirectoryMadeByHand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	before := unix.Umask(0o002)
	err := os.Mkdir(dir, 0o777)
	unix.Umask(before)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func texts(all [][]byte) (list []string) {
	for _, b := range all {
		list = append(list, string(b))
	}
	return list
}

func TestAFileHasOneCoordinator(t *testing.T) {
	dir := t.TempDir()
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir)
	if err == nil || err.Error() != "cannot open the coordinator's log in "+dir+
		": another coordinator uses it; stop that one, or give this one a directory of its own with --state-dir" {
		t.Errorf("%v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestWhatIsRead reads damaged files: a partly written end is cut off, and damage before it is an
// error.
func TestWhatIsRead(t *testing.T) {
	frames := func(payloads ...string) string {
		var b []byte
		for _, p := range payloads {
			b = appendFrame(b, []byte(p))
		}
		return magic + string(b)
	}
	whole := frames("sstate", "efirst", "esecond")
	for name, c := range map[string]struct {
		text    string
		entries int
		torn    bool
		err     error
	}{
		"nothing":                  {"", 0, false, nil},
		"whole":                    {whole, 2, false, nil},
		"torn":                     {whole[:len(whole)-3], 1, true, nil},
		"torn in a header":         {whole + "\x05", 2, true, nil},
		"zeros at the end":         {whole + strings.Repeat("\x00", 100), 2, true, nil},
		"torn beginning":           {magic[:4], 0, true, nil},
		"damaged in the middle":    {strings.Replace(whole, "efirst", "eFirst", 1), 0, false, errDamage},
		"damaged snapshot":         {strings.Replace(whole, "state", "State", 1), 0, false, errDamage},
		"something else":           {"hello, this is no log", 0, false, errFormat},
		"a later shape":            {frames("sstate", "xnew"), 0, false, errFormat},
		"a snapshot in the middle": {frames("efirst", "sstate"), 0, false, errFormat},
	} {
		p, err := Parse([]byte(c.text))
		if !errors.Is(err, c.err) || err == nil && (len(p.Entries) != c.entries || (p.Torn > 0) != c.torn) {
			t.Errorf("%s: %d entries, %d bytes torn, %v", name, len(p.Entries), p.Torn, err)
		}
	}
	for n := range len(whole) { // the part that reached the disk
		if p, err := Parse([]byte(whole[:n])); err != nil || len(p.Entries) > 2 {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
}

// TestAnEarlierStore checks that the files of an earlier golaunch stay unchanged.
func TestAnEarlierStore(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/epoch", []byte("golaunch-store-2 X\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "use the version that wrote it, or another --state-dir") {
		t.Errorf("%v", err)
	}
}

// TestAFileThatHangs checks that the log waits for a file for MaxWrite, and starts again with a
// snapshot when the file can be written again.
func TestAFileThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		inbox := make(chan func(), 100)
		state := "a"
		l := New(Config{
			Storage: d, Post: func(f func()) bool { inbox <- f; return true }, Snapshot: func() []byte { return []byte(state) }, Warn: func(error) {},
		}, 0)
		l.Append([]byte("a"), false)
		var seen time.Duration
		at := time.Now()
		l.Then(func() { seen = time.Since(at) })
		l.Flush()
		(<-inbox)()
		if seen != MaxWrite {
			t.Errorf("it is seen after %v", seen)
		}
		state = "ab"
		l.Append([]byte("b"), false)
		d.end(nil)
		(<-inbox)()
		d.end(nil)
		(<-inbox)()
		if string(d.snapshot) != "ab" || len(d.entries) > 0 || l.broken {
			t.Errorf("%q %q is kept", d.snapshot, d.entries)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(magic))
	f.Add(appendFrame([]byte(magic), []byte("eentry")))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(text[:len(text)-p.Torn])
		if err != nil || len(again.Entries) != len(p.Entries) || again.Torn > 0 {
			t.Fatalf("%d entries, then %d, %v", len(p.Entries), len(again.Entries), err)
		}
	})
}
