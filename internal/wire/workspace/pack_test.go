package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
)

func TestIgnored(t *testing.T) {
	repo := t.TempDir()
	dir := filepath.Join(repo, "sub", "work")
	write(t, repo, ".git/config", "sub/work/train.py", "sub/work/model.ckpt", "sub/work/keep.ckpt", "sub/work/data/big", "sub/work/data/small", "sub/work/empty/",
		"sub/work/__pycache__/x.pyc", "sub/work/venv/bin/python", "sub/work/logs/x", "sub/work/.hidden", "sub/work/out/x")
	for name, rules := range map[string]string{
		".gitignore": "*.ckpt\n/out\n", "sub/.gitignore": "/work/logs\n!keep.ckpt\n", "sub/work/.gitignore": "data/*\nout\n",
		"sub/work/.rayignore": "!data/small\n", "sub/work/out/.gitignore": "!x\n",
	} {
		if err := os.WriteFile(filepath.Join(repo, name), []byte(rules), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := scan(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range got.entries {
		names = append(names, e.name)
	}
	want := ".gitignore .hidden .rayignore data data/small empty keep.ckpt train.py"
	if all := strings.Join(names, " "); all != want {
		t.Errorf("the workspace has %s, want %s", all, want)
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	elsewhere := t.TempDir()
	for _, test := range []struct {
		what, want string
		make       func() error
	}{
		{"a socket", `"s" cannot travel: it is a socket`, func() error {
			l, err := net.Listen("unix", filepath.Join(dir, "s"))
			if err == nil {
				l.(*net.UnixListener).SetUnlinkOnClose(false)
				err = l.Close()
			}
			return err
		}},
		{"a FIFO", `"p" cannot travel: it is a FIFO`, func() error { return unix.Mkfifo(filepath.Join(dir, "p"), 0o600) }},
		{"an absolute link", `"l" cannot travel: it is a link to /etc/passwd, outside the workspace`, func() error {
			return os.Symlink("/etc/passwd", filepath.Join(dir, "l"))
		}},
		{"a link upwards", `"l" cannot travel: it is a link to ../x`, func() error { return os.Symlink("../x", filepath.Join(dir, "l")) }},
		{"a link over a link", `"a/b/l" cannot travel: it is a link to up/../` + filepath.Base(elsewhere), func() error {
			return errors.Join(os.MkdirAll(filepath.Join(dir, "a/b"), 0o700), os.Symlink("../..", filepath.Join(dir, "a/b/up")),
				os.Symlink("up/../"+filepath.Base(elsewhere), filepath.Join(dir, "a/b/l")))
		}},
	} {
		if err := test.make(); err != nil {
			t.Fatal(err)
		}
		_, err := Describe(dir, limit)
		if _, input := errors.AsType[*InputError](err); !input || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", test.what, err, test.want)
		}
		if err := os.WriteFile(filepath.Join(dir, ".rayignore"), []byte("s\np\nl\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Describe(dir, limit); err != nil {
			t.Errorf("%s that is ignored: %v", test.what, err)
		}
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, why := range map[string]string{filepath.Join(dir, "missing"): "no such file or directory", "/dev/null": "not a directory"} {
		want := "workspace " + name + ": " + why + "; name the directory on this machine that the ranks need"
		if _, err := Describe(name, limit); err == nil || err.Error() != want {
			t.Errorf("workspace %s: %v, want %s", name, err, want)
		}
	}
}

func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "secret", "closed/x", "open")
	if err := errors.Join(os.Chmod(filepath.Join(dir, "secret"), 0), os.Chmod(filepath.Join(dir, "closed"), 0)); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(filepath.Join(dir, "closed"), 0o700)
	var rights *safefile.Rights
	if os.Getuid() == 0 { // root reads everything
		rights = &safefile.Rights{UID: 12345, GID: 12345}
		for path := dir; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
			if err := os.Chmod(path, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	err := rights.Do(func() error {
		_, err := Describe(dir, limit)
		return err
	})
	want := fmt.Sprintf("workspace %[1]s: \"closed\" cannot travel: cannot read it: permission denied; remove it, or list it in .rayignore\n"+
		"workspace %[1]s: \"secret\" cannot travel: cannot read it: permission denied; remove it, or list it in .rayignore", dir)
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// TestTooLarge has a file of 10 GB without a block on the disk, which is refused before it is read.
func TestTooLarge(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "small", "checkpoints/", "more")
	if err := errors.Join(os.Truncate(filepath.Join(dir, "more"), 100), os.WriteFile(filepath.Join(dir, "checkpoints", "step-1"), nil, 0o600),
		os.Truncate(filepath.Join(dir, "checkpoints", "step-1"), 10e9)); err != nil {
		t.Fatal(err)
	}
	_, err := Describe(dir, limit)
	want := fmt.Sprintf(`workspace %s: it has more than 512 MiB, the limit; the largest so far: "checkpoints/" (9.3 GiB); list what the job does not `+
		`need in %[1]s/.rayignore, or raise the limit`, dir)
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestManyRefused(t *testing.T) {
	dir := t.TempDir()
	for i := range 15 {
		if err := os.Symlink("/x", filepath.Join(dir, fmt.Sprintf("l%02d", i))); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Describe(dir, limit)
	if lines := strings.Split(fmt.Sprint(err), "\n"); len(lines) != 11 || !strings.HasSuffix(lines[10], "5 more files cannot travel") {
		t.Errorf("15 bad files: %v", err)
	}
}

// TestChanging checks that a file that changes while it is packed is an error.
func TestChanging(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "log")
	found, err := scan(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "log"), []byte("longer than before"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := found.pack(io.Discard); err == nil || !strings.Contains(err.Error(), `"log" changed while it was packed`) {
		t.Errorf("a file that has grown: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	if _, err := found.pack(io.Discard); err == nil || !strings.Contains(err.Error(), `"log" changed while it was packed`) {
		t.Errorf("a file that is gone: %v", err)
	}
}

// TestReplacedWhileRead checks that the removal of a wrong archive does not remove a right archive
// that has replaced it.
func TestReplacedWhileRead(t *testing.T) {
	c := NewCache(filepath.Join(t.TempDir(), "cache"))
	w := archiveOf([]byte("right"))
	wrong, err := receive(c, w, []byte("right"))
	if err != nil {
		t.Fatal(err)
	}
	defer wrong.Close()
	right, err := receive(c, w, []byte("right")) // as another process does meanwhile
	if err != nil {
		t.Fatal(err)
	}
	defer right.Close()
	for _, test := range []struct {
		a    *Archive
		want error
	}{{wrong, nil}, {right, fs.ErrNotExist}} {
		if err := c.locked(func() error { return c.removeWrong(test.a) }); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(c.path(w.ID)); !errors.Is(err, test.want) {
			t.Errorf("the archive: %v, want %v", err, test.want)
		}
	}
}

func BenchmarkPack(b *testing.B) {
	dir := b.TempDir()
	content := bytes.Repeat([]byte("golaunch"), 1<<12)
	for i := range 1000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), content, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	c := NewCache(filepath.Join(b.TempDir(), "cache"))
	b.SetBytes(int64(1000 * len(content)))
	for b.Loop() {
		a, d := unpacked(b, c, dir)
		a.Close()
		if err := d.Remove(); err != nil {
			b.Fatal(err)
		}
	}
}
