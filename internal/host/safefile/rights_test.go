package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestRights makes root act as another user, and then as root again.
func TestRights(t *testing.T) {
	unprotected(t)
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o711), os.Chmod(dir, 0o711), os.Mkdir(filepath.Join(dir, "theirs"), 0o700),
		os.Chown(filepath.Join(dir, "theirs"), other, other), os.WriteFile(filepath.Join(dir, "secret"), nil, 0o600))
	r := &Rights{UID: other, GID: other + 1, Groups: []uint32{other + 2}}
	root, err := OpenRoot(filepath.Join(dir, "theirs"), r)
	must(t, err)
	defer root.Close()
	must(t, root.Own(), root.MkdirAll("a/b", 0o700), root.Symlink("b", "a/link"))
	f, err := root.OpenOwn("a/b/file", os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	must(t, f.Close())
	for _, name := range []string{"a", "a/b/file"} {
		info, err := os.Stat(filepath.Join(dir, "theirs", name))
		must(t, err)
		if uid := owner(info); uid != other || Is(info) {
			t.Errorf("%s belongs to uid %d", name, uid)
		}
		if of := Of(info); of == nil || of.UID != other || of.GID != other+1 {
			t.Errorf("%s has the rights of %+v", name, of)
		}
	}
	err = r.Do(func() error {
		_, err := os.ReadFile(filepath.Join(dir, "secret"))
		return err
	})
	if !errors.Is(err, fs.ErrPermission) {
		t.Errorf("another user reads root's file: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "theirs/roots"), nil, 0o666))
	if _, err := root.OpenOwn("roots", os.O_RDONLY, 0); err == nil {
		t.Error("root's file is another's own")
	}
	_, err = os.ReadFile(filepath.Join(dir, "secret"))
	must(t, err, root.RemoveAll("a"))
	for _, nobody := range []*Rights{{UID: unset, GID: 1}, {UID: 1, GID: unset}} {
		if err := nobody.Do(func() error { return nil }); err == nil {
			t.Errorf("%+v has rights", nobody)
		}
		if _, err := nobody.Credential(); err == nil {
			t.Errorf("%+v has processes", nobody)
		}
	}
}
