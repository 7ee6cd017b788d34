package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/testkit/pipetest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

func TestOpenDirRefusesNames(t *testing.T) {
	base := t.TempDir()
	for _, job := range []string{"", ".", "..", "../x", "a/b", ".hidden", "-x", "a b", "a\u202eb", "a\x00", "a\n", strings.Repeat("a", 129)} {
		if _, err := OpenDir(base, job); err == nil {
			t.Errorf("job id %q was accepted", job)
		}
	}
	if entries, err := os.ReadDir(base); err != nil || len(entries) != 0 {
		t.Errorf("entries %v, error %v", entries, err)
	}
}

func TestOpenDirRefusesLinks(t *testing.T) {
	base, other := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(base, "mine"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{other, "mine", "missing"} {
		if err := os.Symlink(target, filepath.Join(base, "job1")); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenDir(base, "job1"); err == nil {
			t.Errorf("a link to %s was followed", target)
		}
		if err := os.Remove(filepath.Join(base, "job1")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAnotherUsersFiles: root does not write to a file that another user has put in the place of a
// log.
func TestAnotherUsersFiles(t *testing.T) {
	if os.Geteuid() != 0 {
		suite.Missing(t, "only root can make another user's files")
	}
	base := t.TempDir()
	planted, victim, link := filepath.Join(base, "planted"), filepath.Join(base, "victim"), filepath.Join(base, "link")
	if err := errors.Join(os.Mkdir(planted, 0o700), os.Chown(planted, 1234, 1234), os.Mkdir(victim, 0o700), os.Symlink(victim, link)); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDir(base, "planted"); err == nil || !strings.Contains(err.Error(), "belongs to uid 1234, not to uid 0") {
		t.Error(err)
	}
	d, err := OpenDir(link, "job") // root's own link
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := os.Lchown(link, 1234, 1234); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDir(link, "job2"); err == nil || !strings.Contains(err.Error(), "is a symbolic link of uid 1234, another user") {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(victim, "job2")); err == nil {
		t.Error("the link was followed")
	}
}

// Other users can read nothing, with any umask.
func TestModes(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	base := filepath.Join(t.TempDir(), "new", "base")
	d := openDir(t, base)
	run(t, newRank(t, d, RankOptions{}), `echo x; echo y >&2`)
	n := 0
	err := filepath.WalkDir(filepath.Dir(base), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		n++
		if want := fs.FileMode(0o600); err == nil && info.Mode().IsRegular() && info.Mode() != want {
			t.Errorf("%s: %v, want %v", path, info.Mode(), want)
		}
		if err == nil && info.IsDir() && info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v", path, info.Mode())
		}
		return err
	})
	if err != nil || n != 6 {
		t.Errorf("%d entries, error %v", n, err)
	}
}

// A file name that leads out of the directory, or is not a file, is an error that does not affect
// the rank.
func TestPlantedFiles(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, plant := range map[string]func(path string) error{
		"symlink":   func(path string) error { return os.Symlink(victim, path) },
		"hard link": func(path string) error { return os.Link(victim, path) },
		"fifo":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			d := openDir(t, t.TempDir())
			var warned error
			r := newRank(t, d, RankOptions{Warn: func(err error) { warned = errors.Join(warned, err) }})
			if err := plant(filepath.Join(d.Path(), "attempt-0", "rank-0.stdout.log")); err != nil {
				t.Fatal(err)
			}
			if err := start(t, r, `echo bad`).Wait(); err != nil {
				t.Error(err)
			}
			err := r.Close(pipetest.Soon(t))
			if !regexp.MustCompile(`stdout log of rank 0 on n1.*\(bytes lost: 4\)$`).MatchString(fmt.Sprint(err)) {
				t.Errorf("close: %v", err)
			}
			if warned == nil || strings.Count(warned.Error(), "\n") != 0 {
				t.Errorf("warned %v", warned)
			}
			if got := readFile(t, victim); got != "kept" {
				t.Errorf("the victim has %q", got)
			}
		})
	}
}

func TestSameJobAgain(t *testing.T) {
	base := t.TempDir()
	for range 2 {
		d := openDir(t, base)
		r := newRank(t, d, RankOptions{})
		if _, err := os.Stat(r.ErrorFile()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("an old error file: %v", err)
		}
		run(t, r, `echo x; echo '{"message": "m"}' > "$1"`, r.ErrorFile())
	}
	d := openDir(t, base)
	if got := readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log"); got != "x\nx\n" {
		t.Errorf("file %q", got)
	}
	if err := d.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(d.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Remove: %v", err)
	}
}

// TestSameJobAfterAMount: the kubelet changed the job's directory for the pod's fsGroup at a mount,
// or a FIFO is in its place.
func TestSameJobAfterAMount(t *testing.T) {
	base := t.TempDir()
	path := openDir(t, base).Path()
	if err := os.Chmod(path, 0o770|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	run(t, newRank(t, openDir(t, base), RankOptions{}), `echo x`)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := errors.Join(os.RemoveAll(path), syscall.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDir(base, filepath.Base(path)); err == nil || !strings.Contains(err.Error(), "is no directory") {
		t.Errorf("a FIFO: %v", err)
	}
}

// smallDisk mounts a file system of 1 MiB. In CI, the mount must succeed; elsewhere it needs root.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		suite.Missing(t, "mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// The disk is full: the rank ends well and the console has all.
func TestFullDisk(t *testing.T) {
	d := openDir(t, smallDisk(t))
	r, w := pipetest.Pipe(t)
	c := patient(console.New(w, w))
	shown := pipetest.Collect(t, r, w)
	var warned error
	rank := newRank(t, d, RankOptions{Console: c, Warn: func(err error) { warned = errors.Join(warned, err) }})
	if err := start(t, rank, `seq 1 400000`).Wait(); err != nil {
		t.Error(err)
	}
	err := rank.Close(pipetest.Soon(t))
	if !errors.Is(err, syscall.ENOSPC) || !regexp.MustCompile(`\(bytes lost: \d+\)`).MatchString(err.Error()) {
		t.Errorf("close: %v", err)
	}
	if !errors.Is(warned, syscall.ENOSPC) || strings.Count(warned.Error(), "stdout log of rank 0 on n1") != 1 {
		t.Errorf("warned %v", warned)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if text := shown(); strings.Count(text, "\n") != 400000 || !strings.HasSuffix(text, "\n400000\n") {
		t.Errorf("the console has %d bytes", len(text))
	}
	if text := readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log"); !strings.HasPrefix(text, "1\n2\n") || len(text) < 512<<10 {
		t.Errorf("the file has %d bytes", len(text))
	}
}

// A disk that has room again is written to after a second, and the file says how much is missing.
func TestDiskHasRoomAgain(t *testing.T) {
	dir := smallDisk(t)
	ballast, path := filepath.Join(dir, "ballast"), filepath.Join(dir, "log")
	synctest.Test(t, func(t *testing.T) {
		l := &logFile{name: "log", open: func() (*os.File, error) { return os.Create(path) }}
		l.write([]byte("before\n"))
		if err := os.WriteFile(ballast, make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		l.write([]byte(strings.Repeat("x", 4096)))
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		l.write([]byte("soon\n"))
		time.Sleep(retryAfter)
		l.write([]byte("after\n"))
		err := l.close()
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("close: %v", err)
		}
		text := readFile(t, path)
		var missing int
		head, rest, _ := strings.Cut(text, "\ngolaunch: ")
		if _, err := fmt.Sscanf(rest, "%d bytes are missing here: ", &missing); err != nil || !strings.HasSuffix(rest, "\nafter\n") {
			t.Fatalf("file %q: %v", text, err)
		}
		if len(head)+missing != len("before\nsoon\n")+4096 {
			t.Errorf("%d bytes and %d missing", len(head), missing)
		}
		if !strings.Contains(err.Error(), fmt.Sprintf("(bytes lost: %d)", missing)) {
			t.Errorf("%d bytes are missing, but: %v", missing, err)
		}
	})
}
