package logs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/lazyregexp"
	"github.com/golaunch/golaunch/internal/host/safefile"
)

// eventsFile matches the names of event logs: events.jsonl of the first coordinator, and
// events-NODE.jsonl of each coordinator that took over.
var eventsFile = lazyregexp.New(`^events(-[a-zA-Z0-9._-]+)?\.jsonl$`)

// rankFiles are the names of a rank's files in the directory of an attempt, without the prefix
// "rank-<r>.". rankFile matches the whole names.
var (
	rankFiles = []string{"stdout.log", "stderr.log", "error.json", "notice.json", "notice.json.ready", "heartbeat"}
	rankFile  = lazyregexp.New(`^rank-[0-9]+\.(` + strings.ReplaceAll(strings.Join(rankFiles, "|"), ".", `\.`) + `)$`)
)

// bundleFile matches the names of failure bundles, complete or not.
var bundleFile = lazyregexp.New(`^bundle-[a-zA-Z0-9._-]+\.tar\.gz(\.part)?$`)

// Prune removes the log directories of jobs from base. It spares the directories that were modified
// last, as many as keep says, and those that a process has open. It removes only directories that
// have logs and nothing else. They must belong to this user, or to another user if only this user
// can write to base. Prune follows no link. It skips directories that it cannot read or remove, and
// names them in the error.
func Prune(base string, keep int) error {
	root, err := safefile.OpenRoot(base, nil)
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

func prune(base *safefile.Root, keep int) error {
	jobs, err := pastJobs(base)
	slices.SortFunc(jobs, func(a, b pastJob) int { return cmp.Or(b.written.Compare(a.written), cmp.Compare(a.id, b.id)) })
	for _, j := range jobs[min(max(0, keep), len(jobs)):] {
		err = errors.Join(err, removeUnused(base, j))
	}
	return err
}

// removeUnused locks a directory, and then removes it with the rights of its owner. The directory
// stays if another process has it open and locked, or if the file system has no locks.
func removeUnused(base *safefile.Root, j pastJob) error {
	d, err := base.OpenRoot(j.id, j.rights)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	lock, err := d.OpenFile(".", os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer lock.Close()
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	entries, err := d.ReadDir(".")
	for _, e := range entries {
		err = errors.Join(err, d.RemoveAll(e.Name()))
	}
	if err != nil {
		return err
	}
	return base.Remove(j.id)
}

type pastJob struct {
	id      string
	written time.Time
	// rights are the rights of the directory's owner.
	rights *safefile.Rights
}

func pastJobs(base *safefile.Root) ([]pastJob, error) {
	var jobs []pastJob
	var errs []error
	alone := base.Own() == nil
	err := list(base, ".", func(e fs.DirEntry) bool {
		if !isJobID(e.Name()) {
			return true
		}
		job, ours, err := inspect(base, e.Name(), alone)
		switch {
		case errors.Is(err, fs.ErrNotExist): // another process has removed it
		case err != nil:
			errs = append(errs, err)
		case ours:
			jobs = append(jobs, job)
		}
		return true
	})
	return jobs, errors.Join(append(errs, err)...)
}

// inspect reports whether this package made a directory, and when the directory was last written.
// Another user's directory counts only in a base that belongs to this user alone.
func inspect(base *safefile.Root, id string, alone bool) (j pastJob, ours bool, err error) {
	info, err := base.Lstat(id)
	if err != nil || !info.IsDir() || !safefile.Is(info) && !alone {
		return j, false, err
	}
	j = pastJob{id, info.ModTime(), safefile.Of(info)}
	dir, err := base.OpenRoot(id, j.rights)
	if err != nil {
		return j, false, err
	}
	defer dir.Close()
	names, ours, err := jobEntries(dir)
	for _, name := range names {
		if err != nil || !ours {
			break
		}
		if info, err = dir.Lstat(name); err != nil {
			break
		}
		if info.ModTime().After(j.written) {
			j.written = info.ModTime()
		}
		if info.IsDir() {
			ours, err = isAttempt(dir, name)
		}
	}
	return j, ours, err
}

// jobEntries lists a directory. ours says that the directory has attempts, and besides them only
// [ownerFile], event logs and failure bundles.
func jobEntries(dir *safefile.Root) (names []string, ours bool, err error) {
	attempts := 0
	err = list(dir, ".", func(e fs.DirEntry) bool {
		_, attempt := parseAttempt(e.Name())
		if attempt = attempt && e.IsDir(); attempt {
			attempts++
		}
		names = append(names, e.Name())
		ours = attempt || e.Type().IsRegular() &&
			(e.Name() == ownerFile || eventsFile.Get().MatchString(e.Name()) || bundleFile.Get().MatchString(e.Name()))
		return ours
	})
	return names, ours && attempts > 0, err
}

func isAttempt(base *safefile.Root, name string) (bool, error) {
	ours := true
	err := list(base, name, func(e fs.DirEntry) bool {
		ours = rankFile.Get().MatchString(e.Name()) && e.Type().IsRegular()
		return ours
	})
	return ours, err
}

// keptAttempts is the number of attempts of a rank that keep their files: the first, which most
// likely shows the root cause, and the newest.
const keptAttempts = 20

// pruneAttempts removes the rank's files of older attempts. Other ranks of such an attempt may
// still run here or elsewhere, so each rank removes only its own files, and the last rank removes
// the directory.
func (r *Rank) pruneAttempts() error {
	if r.opts.Attempt < keptAttempts {
		return nil
	}
	all, err := r.dir.attempts(Filter{Attempt: AllAttempts})
	if err != nil || len(all) < keptAttempts {
		return err
	}
	for _, n := range all[1:] {
		if n > r.opts.Attempt-keptAttempts+1 {
			break
		}
		past := Rank{dir: r.dir, opts: RankOptions{Rank: r.opts.Rank, Attempt: n}}
		for _, suffix := range rankFiles {
			if err := r.dir.root.Remove(past.file(suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		// The name of the alias directory ends with the attempt's number. The directory has only
		// links to that attempt's files.
		alias, numbered := strings.CutSuffix(path.Dir(r.opts.Alias), strconv.Itoa(r.opts.Attempt))
		if r.dir.root.Remove(past.attempt()) != nil || !numbered {
			continue
		}
		if err := r.dir.root.RemoveAll(alias + strconv.Itoa(n)); err != nil {
			return err
		}
	}
	return nil
}
