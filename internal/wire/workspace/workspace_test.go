package workspace

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
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
	"pgregory.net/rapid"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/launcher/report"
)

const limit = 512 << 20

// write makes files with their own names as content. A name with a slash at its end is a directory.
func write(t testing.TB, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil && strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o755)
		} else if err == nil {
			err = os.WriteFile(path, []byte(name), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// list describes everything in a directory.
func list(t rapid.TB, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		info, err := e.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			content, err = os.Readlink(path)
		case info.Mode().IsRegular():
			var b []byte
			b, err = os.ReadFile(path)
			content = fmt.Sprintf("%x", sha256.Sum256(b))
		}
		fmt.Fprintf(&out, "%v %q %s\n", info.Mode(), name, content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// made makes a directory.
func made(t rapid.TB, c *Cache, a *Archive) *Directory {
	t.Helper()
	d := c.NewDirectory("job")
	if err := d.Make(a, nil); err != nil {
		t.Fatal(err)
	}
	return d
}

// unpacked returns what a workspace is after a journey.
func unpacked(t rapid.TB, c *Cache, dir string) (*Archive, *Directory) {
	t.Helper()
	a, err := c.Pack(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	return a, made(t, c, a)
}

// TestJourney checks that a tree is the same after it was packed and unpacked, and that equal trees
// have equal IDs.
func TestJourney(t *testing.T) {
	base := t.TempDir()
	cache := NewCache(filepath.Join(base, "cache"))
	name := rapid.StringOfN(rapid.SampledFrom([]rune("abé \n-\"\\*[")), 1, 4, -1)
	rapid.Check(t, func(t *rapid.T) {
		one, two := filepath.Join(base, "one"), filepath.Join(base, "two")
		defer func() {
			if err := errors.Join(removeAll(one), removeAll(two)); err != nil {
				t.Fatal(err)
			}
		}()
		var all []func(dir string)
		dirs := []string{"."}
		seen := map[string]bool{}
		for range rapid.IntRange(0, 12).Draw(t, "entries") {
			path := filepath.Join(rapid.SampledFrom(dirs).Draw(t, "directory"), name.Draw(t, "name"))
			if seen[path] {
				continue
			}
			seen[path] = true
			mode := fs.FileMode(rapid.IntRange(0o400, 0o777).Draw(t, "mode"))
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				mode |= 0o700
				dirs = append(dirs, path)
				all = append(all, func(dir string) {
					if err := errors.Join(os.Mkdir(filepath.Join(dir, path), 0o700), os.Chmod(filepath.Join(dir, path), mode)); err != nil {
						t.Fatal(err)
					}
				})
			case 1:
				content := rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(t, "content")
				all = append(all, func(dir string) {
					p := filepath.Join(dir, path)
					if err := errors.Join(os.WriteFile(p, content, 0o600), os.Chmod(p, mode)); err != nil {
						t.Fatal(err)
					}
				})
			case 2:
				target := name.Draw(t, "target")
				all = append(all, func(dir string) {
					if err := os.Symlink(target, filepath.Join(dir, path)); err != nil {
						t.Fatal(err)
					}
				})
			}
		}
		for _, dir := range []string{one, two} {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, make := range all {
				make(dir)
			}
		}
		a, d := unpacked(t, cache, one)
		defer a.Close()
		if want, got := list(t, one), list(t, d.Path); want != got {
			t.Fatalf("it was\n%s and is\n%s", want, got)
		}
		described, err := Describe(two, limit)
		if err != nil || described != a.Workspace {
			t.Fatalf("the same tree is %v and %v (%v)", a.Workspace, described, err)
		}
		if err := d.Remove(); err != nil {
			t.Fatal(err)
		}
	})
}

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

// TestTooLarge has 10 GB without a block on the disk, which are refused before they are read.
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

// receive takes an archive in.
func receive(c *Cache, w report.Workspace, content []byte) (*Archive, error) {
	in, err := c.Receive(w)
	if err != nil {
		return nil, err
	}
	defer in.Abort()
	if _, err := in.Write(content); err != nil {
		return nil, err
	}
	return in.Commit()
}

func archiveOf(content []byte) report.Workspace {
	sum := sha256.Sum256(content)
	return report.Workspace{ID: hex.EncodeToString(sum[:]), Bytes: int64(len(content))}
}

func TestWrongContent(t *testing.T) {
	c := NewCache(filepath.Join(t.TempDir(), "cache"))
	w := archiveOf([]byte("right"))
	for _, content := range []string{"", "righ", "wrong", "right and more"} {
		if a, err := receive(c, w, []byte(content)); err == nil {
			t.Errorf("%q was taken for another content: %v", content, a)
		}
	}
	if _, err := c.Get(w); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after that: %v", err)
	}
	a, err := receive(c, w, []byte("right"))
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	verified.Clear() // another process does not know what is in the file
	if a, err = c.Get(w); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if err := os.WriteFile(c.path(w.ID), []byte("torn!"), 0o600); err != nil {
		t.Fatal(err)
	}
	verified.Clear()
	if _, err := c.Get(w); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a damaged archive: %v", err)
	}
	if _, err := os.Lstat(c.path(w.ID)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a damaged archive is still there: %v", err)
	}
}

// TestEviction checks that the cache removes what was not used for the longest time, and nothing
// that is used, also by other processes.
func TestEviction(t *testing.T) {
	c := NewCache(filepath.Join(t.TempDir(), "cache"))
	c.limit = 25
	contents := map[string][]byte{}
	for i := range 5 {
		name := fmt.Sprintf("content %d", i) // 9 bytes
		contents[name] = []byte(name)
	}
	has := func(i int) bool {
		a, err := NewCache(c.dir).Get(archiveOf(contents[fmt.Sprintf("content %d", i)]))
		if err == nil {
			a.Close()
		}
		return err == nil
	}
	var used *Archive
	for i := range 4 {
		a, err := receive(c, archiveOf(contents[fmt.Sprintf("content %d", i)]), contents[fmt.Sprintf("content %d", i)])
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			used = a // as another process would
			continue
		}
		a.Close()
	}
	for i, want := range []bool{true, false, false, true} {
		if got := has(i); got != want {
			t.Errorf("archive %d is there: %v, want %v", i, got, want)
		}
	}
	used.Close()
	if !has(3) { // it is now the latest that was used
		t.Fatal("archive 3 is gone")
	}
	a, err := receive(c, archiveOf(contents["content 4"]), contents["content 4"])
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for i, want := range []bool{false, false, false, true, true} {
		if got := has(i); got != want {
			t.Errorf("in the end archive %d is there: %v, want %v", i, got, want)
		}
	}
}

// TestSweep checks that what dead processes left behind goes, and what living ones use stays.
func TestSweep(t *testing.T) {
	c := NewCache(filepath.Join(t.TempDir(), "cache"))
	a, alive := unpacked(t, c, t.TempDir())
	defer a.Close()
	dead := made(t, c, a)
	write(t, dead.Path, "a/b")
	if err := os.Chmod(filepath.Join(dead.Path, "a"), 0o500); err != nil {
		t.Fatal(err)
	}
	dead.lock.Close() // as the kernel does
	in, err := c.Receive(report.Workspace{ID: strings.Repeat("0", 64), Bytes: 10})
	if err != nil {
		t.Fatal(err)
	}
	in.file.Close()
	next := made(t, NewCache(c.dir), a)
	if _, err := os.Stat(dead.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of a dead process: %v", err)
	}
	for _, d := range []*Directory{alive, next} {
		if _, err := os.Stat(d.Path); err != nil {
			t.Error(err)
		}
	}
	other, err := NewCache(c.dir).Receive(report.Workspace{ID: strings.Repeat("0", 64), Bytes: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Abort()
	if parts, _ := filepath.Glob(filepath.Join(c.dir, "*"+partSuffix)); len(parts) != 1 {
		t.Errorf("incoming archives: %q, want one", parts)
	}
	next.lock.Close()
	if _, err := c.Resume(dead.Path, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("resume a directory that is gone: %v", err)
	}
	resumed, err := NewCache(c.dir).Resume(next.Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(alive.Remove(), resumed.Remove()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(c.dir, treesDir)); err != nil || len(left) > 0 {
		t.Errorf("in the end there are %v (%v)", left, err)
	}
}

// hostile packs headers with a content of their size.
func hostile(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, Format: tar.FormatPAX, PAXRecords: map[string]string{comment: format}})
	for _, h := range headers {
		if err == nil {
			err = w.WriteHeader(&h)
		}
		if err == nil {
			_, err = w.Write(make([]byte, h.Size))
		}
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestHostile checks that an archive makes no file outside its directory.
func TestHostile(t *testing.T) {
	link := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
	}
	file := func(name string) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 3, Mode: 0o644}
	}
	for name, archive := range map[string][]byte{
		"nothing":         nil,
		"noise":           []byte(strings.Repeat("x", 2048)),
		"upwards":         hostile(t, file("../x")),
		"absolute":        hostile(t, file("/x")),
		"inner dots":      hostile(t, tar.Header{Typeflag: tar.TypeDir, Name: "a/", Mode: 0o755}, file("a/../../x")),
		"the top":         hostile(t, tar.Header{Typeflag: tar.TypeDir, Name: "./"}),
		"absolute link":   hostile(t, link("l", "/etc")),
		"link upwards":    hostile(t, link("l", "..")),
		"over a link":     hostile(t, link("l", "x"), file("l/x")),
		"hard link":       hostile(t, tar.Header{Typeflag: tar.TypeLink, Name: "l", Linkname: "/etc/passwd"}),
		"device":          hostile(t, tar.Header{Typeflag: tar.TypeChar, Name: "d", Devmajor: 1, Devminor: 3}),
		"FIFO":            hostile(t, tar.Header{Typeflag: tar.TypeFifo, Name: "p"}),
		"twice":           hostile(t, file("x"), file("x")),
		"over a file":     hostile(t, file("x"), file("x/y")),
		"torn":            hostile(t, file("x"))[:2*512+100],
		"another format":  bytes.Replace(hostile(t), []byte(format), []byte("golaunch-workspace-2"), 1),
		"larger than all": bomb(t),
	} {
		base := t.TempDir()
		dir := filepath.Join(base, "d")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := Unpack(bytes.NewReader(archive), int64(len(archive)), root); err == nil {
			t.Errorf("%s: it was unpacked: %s", name, list(t, dir))
		} else {
			t.Log(name+":", err)
		}
		root.Close()
		if entries, _ := os.ReadDir(base); len(entries) != 1 {
			t.Errorf("%s: files outside: %v", name, entries)
		}
	}
}

// bomb is an archive of some kilobytes with a file of a terabyte, sparse as GNU's tar writes it.
func bomb(t testing.TB) []byte {
	t.Helper()
	b := hostile(t, tar.Header{Typeflag: tar.TypeReg, Name: "bomb", Format: tar.FormatGNU})
	header := b[len(b)-3*512 : len(b)-2*512]
	header[156] = 'S'
	copy(header[386:], "00000000000\x0000000000000\x00")
	copy(header[483:], "17777777777777\x00"[:12])
	sum := int64(0)
	copy(header[148:156], "        ")
	for _, c := range header {
		sum += int64(c)
	}
	copy(header[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

// FuzzUnpack checks that no archive makes a file outside its directory, or more bytes than it has.
func FuzzUnpack(f *testing.F) {
	f.Add(hostile(f, tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 5, Mode: 0o600}, tar.Header{Typeflag: tar.TypeSymlink, Name: "b", Linkname: "a"}))
	f.Add(hostile(f, tar.Header{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o755}, tar.Header{Typeflag: tar.TypeReg, Name: "d/x", Size: 600, Mode: 0o755}))
	f.Add(hostile(f, tar.Header{Typeflag: tar.TypeReg, Name: "../x", Size: 1}))
	f.Add(bomb(f))
	f.Fuzz(func(t *testing.T, archive []byte) {
		base := t.TempDir()
		dir := filepath.Join(base, "d")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		defer removeAll(dir)
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		_ = Unpack(bytes.NewReader(archive), int64(len(archive)), root)
		if entries, _ := os.ReadDir(base); len(entries) != 1 {
			t.Fatalf("files outside: %v", entries)
		}
		var total int64
		_ = fs.WalkDir(root.FS(), ".", func(_ string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				if info, err := e.Info(); err == nil {
					total += info.Size()
				}
			}
			return nil
		})
		if total > int64(len(archive)) {
			t.Fatalf("%d bytes from an archive of %d", total, len(archive))
		}
	})
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

// full is a disk without space.
type full struct{ io.Writer }

func (full) Write([]byte) (int, error) { return 0, unix.ENOSPC }

// TestFullDisk checks that what could not be written is not blamed on the file that was read.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "large")
	if err := os.Truncate(filepath.Join(dir, "large"), 1<<20); err != nil {
		t.Fatal(err)
	}
	found, err := scan(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := found.pack(full{}); !errors.Is(err, unix.ENOSPC) || strings.Contains(err.Error(), "large") {
		t.Errorf("pack: %v", err)
	}
	c := NewCache(filepath.Join(t.TempDir(), "cache"))
	in, err := c.Receive(report.Workspace{Bytes: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Abort()
	disk, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	part := in.file
	in.file = disk
	defer func() { in.file = part }() // for Abort
	want := fmt.Sprintf("cannot keep a workspace in %s: no space left on device; free space there", c.dir)
	if _, err := in.Write([]byte("x")); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestReplacedWhileRead checks that a wrong archive takes no right one with it.
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
