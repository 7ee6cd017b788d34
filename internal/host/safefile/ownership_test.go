package safefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// other is a user who does not run the test.
const other = 1234

// unprotected is for tests with other users' files. These files are in no directory with the sticky
// bit, where the kernel itself may refuse them (fs.protected_*, proc_sys_fs(5)). So this package is
// what refuses them.
func unprotected(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		suite.Missing(t, "only root can make another user's files")
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// says checks that an error has some words, or, without words, that there is no error.
func says(t *testing.T, what string, err error, words string) {
	t.Helper()
	if words == "" && err != nil || words != "" && (err == nil || !strings.Contains(err.Error(), words)) {
		t.Errorf("%s: %v, want %q", what, err, words)
	}
}

func TestPath(t *testing.T) {
	unprotected(t)
	base := t.TempDir()
	at := func(name string) string { return filepath.Join(base, name) }
	must(t, os.MkdirAll(at("victim/sub"), 0o700))
	for _, dir := range []struct {
		name string
		mode os.FileMode
		uid  int
	}{{"all", 0o777, 0}, {"some", 0o755, 0}, {"group", 0o775, 0}, {"home", 0o775, other}, {"anyones", 0o777, other}} {
		must(t, os.Mkdir(at(dir.name), 0), os.Chmod(at(dir.name), dir.mode), os.Chown(at(dir.name), dir.uid, dir.uid))
	}
	for _, link := range []struct {
		name, target string
		uid          int
	}{
		{"all/theirs", "../victim", other},
		{"all/mine", "../victim", 0},
		{"all/hop", at("all/theirs"), 0},
		{"some/theirs", "../victim", other},
		{"group/theirs", "../victim", other},
		{"group/mine", "../victim", 0},
		{"home/theirs", "../victim", other},
		{"home/mine", "../victim", 0},
		{"home/third", "../victim", other + 1},
		{"anyones/theirs", "../victim", other},
		{"round", "round", 0},
	} {
		must(t, os.Symlink(link.target, at(link.name)), os.Lchown(at(link.name), link.uid, link.uid))
	}
	foreign := "is a symbolic link of uid 1234, another user"
	for path, want := range map[string]string{
		"victim": "", "missing": "", "missing/below": "", "all/mine": "", "all/mine/sub": "",
		"all/theirs":      foreign,
		"all/theirs/sub":  foreign,
		"all/hop":         foreign, // a user's own link to another user's file
		"all/hop/sub/new": foreign,
		"some/theirs":     foreign,
		"some/theirs/sub": "", // in a directory where that user may make files

		"group/theirs":       foreign,
		"group/theirs/sub":   foreign, // any member of the group could have made it
		"group/mine/sub":     "",
		"home/theirs":        foreign,
		"home/theirs/sub":    "", // that user's umask is 002
		"home/mine/sub":      "",
		"home/third/sub":     "is a symbolic link of uid 1235, another user",
		"anyones/theirs/sub": foreign,

		"round":         "too many levels of symbolic links",
		"victim/../all": "",
	} {
		says(t, path, Path(at(path)), want)
	}
	t.Chdir(at("all"))
	says(t, "a relative path", Path("theirs/sub"), foreign)
}

func TestDir(t *testing.T) {
	unprotected(t)
	for _, c := range []struct {
		name string
		mode os.FileMode
		uid  int
		want string
		then os.FileMode
	}{
		{"mine", 0o700, 0, "", 0o700},
		{"readable", 0o755, 0, "", 0o755},
		{"theirs", 0o700, other, "belongs to uid 1234, not to uid 0", 0o700},
		{"umask 002", 0o775, 0, "", 0o755},
		{"fsGroup", 0o770 | os.ModeSetgid, 0, "", 0o750 | os.ModeSetgid}, // kubelet turns 0700 into this mode
		{"group of theirs", 0o770, other, "belongs to uid 1234, not to uid 0", 0o770},
		{"sticky", 0o777 | os.ModeSticky, 0, "others can write to", 0o777 | os.ModeSticky},
		{"everybody but the group", 0o702, 0, "others can write to", 0o702},
	} {
		path := filepath.Join(t.TempDir(), c.name)
		must(t, os.Mkdir(path, 0o700), os.Chown(path, c.uid, c.uid), os.Chmod(path, c.mode))
		root, err := Open(path)
		must(t, err)
		says(t, c.name, Dir(root), c.want)
		info, err := root.Stat(".")
		must(t, err, root.Close())
		if mode := info.Mode() &^ os.ModeDir; mode != c.then {
			t.Errorf("%s: mode %v, want %v", c.name, mode, c.then)
		}
	}
}

// TestOpen: opening a FIFO does not wait for its other end.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o666), os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for name, want := range map[string]string{"fifo": "not a directory", "file": "not a directory", "missing": "no such file", "": ""} {
		root, err := Open(filepath.Join(dir, name))
		says(t, name, err, want)
		if err == nil {
			must(t, root.Close())
		}
		again, err := OpenRoot(filepath.Join(dir, name), nil)
		says(t, name+" as a Root", err, want)
		if err == nil {
			must(t, again.Close())
		}
	}
}

// planted are files that another user may have put in place of ours, with the error for each.
func planted(t *testing.T, dir string) map[string]string {
	t.Helper()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(at("victim"), []byte("kept"), 0o600), os.Link(at("victim"), at("hard")), os.Symlink("victim", at("soft")),
		os.Lchown(at("soft"), other, other), os.WriteFile(at("theirs"), nil, 0o666), os.Chown(at("theirs"), other, other),
		unix.Mkfifo(at("fifo"), 0o666), os.Chown(at("fifo"), other, other))
	return map[string]string{"hard": "name", "soft": "symbolic link of uid 1234", "theirs": "belongs to uid 1234", "fifo": ""}
}

func TestWrite(t *testing.T) {
	unprotected(t)
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o777))
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, want := range planted(t, dir) {
		err := Write(at(name), []byte("lost"), 0o600)
		if err == nil {
			t.Errorf("%s was written", name)
		}
		if want != "" {
			says(t, name, err, want)
		}
	}
	if text, err := os.ReadFile(at("victim")); err != nil || string(text) != "kept" {
		t.Errorf("the victim has %q, %v", text, err)
	}
	must(t, os.Chmod(dir, 0o755))
	says(t, "another's file where only root could have put it", Write(at("theirs"), []byte("x"), 0o600), "")
	must(t, os.Symlink("new", at("mine")))
	for _, text := range []string{"longer", "new"} { // the old content is replaced
		must(t, Write(at("mine"), []byte(text), 0o644))
		if got, err := os.ReadFile(at("new")); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	says(t, "a device", Write("/dev/null", []byte("x"), 0), "")
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	given := fmt.Sprint("/proc/self/fd/", w.Fd())
	must(t, os.Symlink(given, at("stderr")))
	says(t, "a link to a pipe, as /dev/stderr is", Write(given, []byte("x"), 0), "")
	must(t, w.Chown(other, other))
	says(t, "a pipe of another's that this process was given", Write(at("stderr"), []byte("x"), 0), "")
	must(t, w.Close())
}

// TestFilesWithoutNames: files without names are treated like files with one name.
func TestFilesWithoutNames(t *testing.T) {
	dir := t.TempDir()
	gone, err := os.Create(filepath.Join(dir, "rotated"))
	must(t, err, os.Remove(filepath.Join(dir, "rotated")))
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	must(t, err)
	for _, f := range []*os.File{gone, os.NewFile(uintptr(fd), "memory")} {
		says(t, f.Name(), File(f), "")
		says(t, f.Name(), Write(fmt.Sprint("/proc/self/fd/", f.Fd()), []byte("x"), 0), "")
		text := make([]byte, 2)
		if n, err := f.ReadAt(text, 0); n != 1 || text[0] != 'x' {
			t.Errorf("%s has %q, %v", f.Name(), text[:n], err)
		}
		must(t, f.Close())
	}
}

func TestFile(t *testing.T) {
	unprotected(t)
	dir := t.TempDir()
	planted(t, dir)
	for name, want := range map[string]string{"hard": "is not a plain file", "fifo": "is not a plain file", "theirs": "belongs to uid 1234"} {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|unix.O_NONBLOCK, 0)
		must(t, err)
		says(t, name, File(f), want)
		must(t, f.Close())
	}
	f, err := os.Create(filepath.Join(dir, "mine"))
	must(t, err)
	defer f.Close()
	says(t, "mine", File(f), "")
}
