package saves

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// write makes a file with its directories.
func write(t *testing.T, text string, path ...string) {
	t.Helper()
	at := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// names returns the names in a directory, and in its directory for partial checkpoints.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != aside {
			all = append(all, e.Name())
			continue
		}
		for _, name := range names(t, filepath.Join(dir, aside)) {
			all = append(all, aside+"/"+name)
		}
	}
	return all
}

// checkpoint200 makes two checkpoints of Trainer: a whole one of step 100, and a partial one of
// step 200.
func checkpoint200(t *testing.T, dir string) {
	t.Helper()
	write(t, `{"global_step": 100}`, dir, "checkpoint-100", "trainer_state.json")
	write(t, "state", dir, "checkpoint-200", "optimizer.bin")
}

// check returns the reports of a start with a job on this machine alone. It calls the function
// during while it waits.
func check(l Leftovers, during func()) (all []job.Saved) {
	l.Base.Node = "n1"
	l.Report = func(ev job.Saved) { all = append(all, ev) }
	l.Say = func(string) {}
	l.wait = func(context.Context, time.Duration) error { during(); return nil }
	l.Check(context.Background())
	return all
}

func TestLeftovers(t *testing.T) {
	nothing := func(*testing.T, string) {}
	for _, c := range []struct {
		name string
		// prepare makes more files. during changes them between the two looks.
		prepare, during func(t *testing.T, dir string)
		several         bool
		state           job.SaveState
		why             string
		// left are the names in the directory after a check that sets aside.
		left []string
	}{
		{"partial", nothing, nothing, false, job.SaveSetAside, "trainer_state.json is missing", []string{"checkpoint-100", "partial/checkpoint-200"}},
		{"complete", func(t *testing.T, dir string) {
			write(t, "state", dir, "checkpoint-200", "rng_state.pth")
			write(t, `{"global_step": 200}`, dir, "checkpoint-200", "trainer_state.json")
		}, nothing, false, "", "", []string{"checkpoint-100", "checkpoint-200"}},
		{"on the disk of one of several nodes", nothing, nothing, true, "", "", []string{"checkpoint-100", "checkpoint-200"}},
		{
			"its new name is taken", func(t *testing.T, dir string) { write(t, "mine", dir, "partial", "checkpoint-200", "file") }, nothing, false,
			job.SaveLeft, "not set aside: partial/checkpoint-200 is there",
			[]string{"checkpoint-100", "checkpoint-200", "partial/checkpoint-200"},
		},
		{"a link", func(t *testing.T, dir string) {
			if err := os.Symlink("checkpoint-200", filepath.Join(dir, "checkpoint-300")); err != nil {
				t.Fatal(err)
			}
		}, nothing, false, job.SaveLeft, "not set aside: it is a symbolic link", []string{"checkpoint-100", "checkpoint-200", "checkpoint-300"}},
		{"a copy in another order", func(t *testing.T, dir string) {
			write(t, `{"global_step": 200}`, dir, "checkpoint-200", "trainer_state.json")
			write(t, "state", dir, "checkpoint-200", "rng_state.pth")
			earlier := time.Now().Add(-time.Minute) // writes within a tick of the kernel have the same time
			if err := os.Chtimes(filepath.Join(dir, "checkpoint-200", "trainer_state.json"), earlier, earlier); err != nil {
				t.Fatal(err)
			}
		}, nothing, false, job.SaveLeft, "not set aside: only the times", []string{"checkpoint-100", "checkpoint-200"}},
		{
			"it still grows", nothing, func(t *testing.T, dir string) { write(t, "more state", dir, "checkpoint-200", "optimizer.bin") }, false,
			job.SaveLeft, "not set aside: it still changes",
			[]string{"checkpoint-100", "checkpoint-200"},
		},
		{"it becomes complete", nothing, func(t *testing.T, dir string) {
			write(t, `{"global_step": 200}`, dir, "checkpoint-200", "trainer_state.json")
			write(t, "state", dir, "checkpoint-200", "rng_state.pth")
		}, false, job.SaveLeft, "not set aside: it still changes", []string{"checkpoint-100", "checkpoint-200"}},
		{"a process has it open", func(t *testing.T, dir string) {
			f, err := os.OpenFile(filepath.Join(dir, "checkpoint-200", "optimizer.bin"), os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
		}, nothing, false, job.SaveLeft, "has it open for writing", []string{"checkpoint-100", "checkpoint-200"}},
		{
			"a number that is no checkpoint", func(t *testing.T, dir string) { write(t, "{", dir, "2026", "notes.json") }, nothing, false,
			"", "",
			[]string{"2026", "checkpoint-100", "checkpoint-200"},
		},
		{
			"a file", func(t *testing.T, dir string) { write(t, "PK\x03\x04 and no end", dir, "ckpt_300.pt") }, nothing, false,
			job.SaveSetAside, "ckpt_300.pt is cut short",
			[]string{"checkpoint-100", "checkpoint-200", "partial/ckpt_300.pt"},
		},
	} {
		for _, setAside := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				dir := t.TempDir()
				checkpoint200(t, dir)
				c.prepare(t, dir)
				before := names(t, dir)
				all := check(Leftovers{Dirs: []string{dir}, Alone: !c.several, SetAside: setAside}, func() { c.during(t, dir) })
				left, state := c.left, c.state
				if !setAside && state != "" {
					left, state = before, job.SaveLeft
				}
				if got := names(t, dir); !slices.Equal(got, left) {
					t.Errorf("the directory has %v, want %v", got, left)
				}
				if state == "" {
					if len(all) > 0 {
						t.Errorf("it reports %+v", all)
					}
					return
				}
				if len(all) == 0 || all[0].State != state || all[0].Node != "n1" || setAside && !strings.Contains(all[0].Why, c.why) {
					t.Errorf("it reports %+v, want %s: %s", all, state, c.why)
				}
			})
		}
	}
}

// TestOneLeftover checks that one leftover is set aside, and that the next one, which is partial
// too, is reported.
func TestOneLeftover(t *testing.T) {
	dir := t.TempDir()
	checkpoint200(t, dir)
	write(t, "state", dir, "checkpoint-300", "optimizer.bin")
	all := check(Leftovers{Dirs: []string{dir, dir}, Alone: true, SetAside: true}, func() {})
	want := []string{"checkpoint-100", "checkpoint-200", "partial/checkpoint-300"}
	if got := names(t, dir); !slices.Equal(got, want) || all[0].State != job.SaveSetAside || all[1].State != job.SaveLeft || all[1].Path != filepath.Join(dir, "checkpoint-200") {
		t.Errorf("%v, %+v", got, all)
	}
}

// TestPointers checks that the checkpoint in Megatron's tracker is left alone: Megatron loads it,
// and would not start without it.
func TestPointers(t *testing.T) {
	for named, why := range map[string]string{"100": "", "200": "not set aside: latest_checkpointed_iteration.txt names it"} {
		dir := t.TempDir()
		write(t, named, dir, "latest_checkpointed_iteration.txt")
		write(t, "x", dir, "iter_0000100", "common.bin")
		write(t, "PK\x03\x04 and no end", dir, "iter_0000200", "model_optim_rng.pt")
		all := check(Leftovers{Dirs: []string{dir}, Alone: true, SetAside: true}, func() { t.Error("it waits") })
		if len(names(t, dir)) != 3 || (why == "") != (len(all) == 0) || why != "" && !strings.Contains(all[0].Why, why) {
			t.Errorf("%s: %v, %+v", named, names(t, dir), all)
		}
	}
}

// TestReadOnlyDirectory has a directory that the user of the job may not change.
func TestReadOnlyDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		suite.Missing(t, "only root can take the rights of another user")
	}
	dir := t.TempDir()
	checkpoint200(t, dir)
	for _, at := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	all := check(Leftovers{Dirs: []string{dir}, Alone: true, SetAside: true, Rights: &safefile.Rights{UID: 1234, GID: 1234}}, func() {})
	if len(all) != 1 || all[0].State != job.SaveLeft || !strings.Contains(all[0].Why, "permission denied") || len(names(t, dir)) != 2 {
		t.Errorf("%v, %+v", names(t, dir), all)
	}
}

// TestRenameTo tests the rename for file systems that cannot refuse to replace.
func TestRenameTo(t *testing.T) {
	dir := t.TempDir()
	checkpoint200(t, dir)
	write(t, "x", dir, "a.pt")
	write(t, "y", dir, "b.pt")
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	fd := int(d.Fd())
	if err := renameTo(fd, "a.pt", "b.pt", unix.S_IFREG); err == nil {
		t.Error("a file is replaced")
	}
	if err := renameTo(fd, "checkpoint-200", "checkpoint-100", unix.S_IFDIR); err == nil {
		t.Error("a directory is replaced")
	}
	if err := renameTo(fd, "a.pt", "c.pt", unix.S_IFREG); err != nil {
		t.Error(err)
	}
	if err := renameTo(fd, "checkpoint-200", "d", unix.S_IFDIR); err != nil {
		t.Error(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"b.pt", "c.pt", "checkpoint-100", "d"}) {
		t.Error(got)
	}
}
