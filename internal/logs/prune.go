package logs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/own"
)

// eventsFile is what coordinators keep beside the ranks' output, those that took over too.
var eventsFile = regexp.MustCompile(`^events(-[a-zA-Z0-9._-]+)?\.jsonl$`)

// rankFile is what ranks leave in the directory of an attempt.
var rankFile = regexp.MustCompile(`^rank-[0-9]+\.(stdout\.log|stderr\.log|error\.json|notice\.json|notice\.json\.ready|heartbeat)$`)

// bundleFile is what package bundle leaves in the directory of a job, whole or not.
var bundleFile = regexp.MustCompile(`^bundle-[a-zA-Z0-9._-]+\.tar\.gz(\.part)?$`)

// Prune removes the directories of jobs from base but for the keep that were written last, by the times of the directory and of
// what is right inside, and those that a process has open. Only a directory of this user, with logs in it and nothing else, is
// taken for a job's; no link is followed. One that cannot be looked at or removed is told of at the end, and the others go.
func Prune(base string, keep int) error {
	root, err := os.OpenRoot(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove old logs: %w", err)
	}
	if err := errors.Join(prune(root, keep), root.Close()); err != nil {
		return fmt.Errorf("remove old logs in %s: %w", base, err)
	}
	return nil
}

func prune(base *os.Root, keep int) error {
	jobs, err := pastJobs(base)
	slices.SortFunc(jobs, func(a, b pastJob) int { return cmp.Or(b.written.Compare(a.written), cmp.Compare(a.id, b.id)) })
	for _, j := range jobs[min(max(0, keep), len(jobs)):] {
		err = errors.Join(err, removeUnused(base, j.id))
	}
	return err
}

// removeUnused removes a directory that no process has open, as far as its file system can tell.
func removeUnused(base *os.Root, id string) error {
	d, err := base.Open(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	if unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	return base.RemoveAll(id)
}

type pastJob struct {
	id      string
	written time.Time
}

func pastJobs(base *os.Root) ([]pastJob, error) {
	var jobs []pastJob
	var errs []error
	err := list(base, ".", func(e fs.DirEntry) bool {
		if !isJobID(e.Name()) {
			return true
		}
		written, ours, err := lookAt(base, e.Name())
		switch {
		case errors.Is(err, fs.ErrNotExist): // another process was faster
		case err != nil:
			errs = append(errs, err)
		case ours:
			jobs = append(jobs, pastJob{e.Name(), written})
		}
		return true
	})
	return jobs, errors.Join(append(errs, err)...)
}

// lookAt reports whether a directory is one that Dir made, and when it was last written.
func lookAt(base *os.Root, id string) (written time.Time, ours bool, err error) {
	info, err := base.Lstat(id)
	if err != nil || !info.IsDir() || !own.Is(info) {
		return written, false, err
	}
	written = info.ModTime()
	names, ours, err := jobEntries(base, id)
	for _, name := range names {
		if err != nil || !ours {
			break
		}
		if info, err = base.Lstat(name); err != nil {
			break
		}
		if info.ModTime().After(written) {
			written = info.ModTime()
		}
		if info.IsDir() {
			ours, err = isAttempt(base, name)
		}
	}
	return written, ours, err
}

// jobEntries are what is in a directory that has attempts and, perhaps, events and failure bundles, but nothing else.
func jobEntries(base *os.Root, id string) (names []string, ours bool, err error) {
	attempts := 0
	err = list(base, id, func(e fs.DirEntry) bool {
		_, attempt := parseAttempt(e.Name())
		if attempt = attempt && e.IsDir(); attempt {
			attempts++
		}
		names = append(names, id+"/"+e.Name())
		ours = attempt || e.Type().IsRegular() && (eventsFile.MatchString(e.Name()) || bundleFile.MatchString(e.Name()))
		return ours
	})
	return names, ours && attempts > 0, err
}

func isAttempt(base *os.Root, name string) (bool, error) {
	ours := true
	err := list(base, name, func(e fs.DirEntry) bool {
		ours = rankFile.MatchString(e.Name()) && e.Type().IsRegular()
		return ours
	})
	return ours, err
}
