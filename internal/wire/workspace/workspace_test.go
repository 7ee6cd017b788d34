package workspace

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
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

// unpacked returns a workspace that was packed and unpacked.
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
