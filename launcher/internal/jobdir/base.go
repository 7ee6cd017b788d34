// Package jobdir chooses the directories for the files of jobs.
package jobdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/launcher/internal/usage"
)

// kept is the number of ended jobs whose files stay in a directory that golaunch has chosen.
const kept = 200

// Workspaces is the name of the directory with the workspaces of jobs, beside their files. No job or
// node can have this name.
const Workspaces = ".workspaces"

// Temp returns this user's directory for the files of jobs that name no directory.
func Temp() string { return filepath.Join(os.TempDir(), fmt.Sprintf("golaunch-%d", os.Getuid())) }

// Base returns the directory that the user chose, or else makes and returns Temp. Other users can
// make directories beside Temp, so Base refuses one that other users can use.
func Base(dir string) (string, error) {
	if dir != "" {
		return dir, nil
	}
	dir = Temp()
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return dir, fmt.Errorf("%w: %w; choose one with --log-dir", errCannotMake, err)
	}
	if err := onlyMine(dir); err != nil {
		return dir, unusable(err)
	}
	return dir, nil
}

// errCannotMake says that golaunch cannot make a directory. If another user has put something in
// its place, that is a different error.
var errCannotMake = errors.New("cannot make a directory for logs")

// unusable advises another directory, unless the reason is the limit of open files.
func unusable(err error) error {
	if errors.Is(err, syscall.EMFILE) {
		return err
	}
	return fmt.Errorf("%w; choose another directory for logs with --log-dir", err)
}

func onlyMine(dir string) error {
	if err := safefile.Path(dir); err != nil {
		return err
	}
	root, err := safefile.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(safefile.Dir(root), root.Close())
}

// passable makes a directory that other users cannot list, but in which they can reach their own
// files.
func passable(dir string) error {
	if err := safefile.Path(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	d, err := safefile.OpenRoot(dir, nil)
	if err != nil {
		return err
	}
	defer d.Close()
	info, err := d.Stat(".")
	if err == nil {
		err = d.Own()
	}
	if err == nil && info.Mode().Perm()&0o011 != 0o011 {
		err = os.Chmod(dir, info.Mode().Perm()|0o111)
	}
	return err
}

// take takes the directory of a job for a run. If another run uses the directory, take fails if the
// user chose the directory, and otherwise takes another one.
func take(w logs.Access, base, name, run string, chosen bool) (*logs.Dir, error) {
	if !chosen {
		return w.TakeFree(base, name, run)
	}
	d, err := w.TakeDir(base, name, run)
	if taken, ok := errors.AsType[*logs.TakenError](err); ok {
		return nil, usage.Errorf("%w: give this run another --job-id or --log-dir, or wait for the end of that one", taken)
	}
	return d, err
}
