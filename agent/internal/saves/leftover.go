package saves

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/agent/internal/checkpoint"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/host/safefile"
)

const (
	// leftoverLimit bounds each look at the newest checkpoint before a start.
	leftoverLimit = 5 * time.Second
	// settled and settledShared are for how long nothing in a checkpoint may change before it is
	// set aside. On a shared file system, a change by another node may be seen seconds later.
	settled       = time.Second
	settledShared = 10 * time.Second
)

// Leftovers are the newest checkpoints that a start of a job finds. A program that loads the newest
// checkpoint fails if that checkpoint is partial.
type Leftovers struct {
	// Base has the node, the unit and the attempt for each report.
	Base job.Saved
	Dirs []string
	// Alone says that all nodes of the job are on this machine. The parts of a checkpoint on other
	// machines can be judged from this machine only if all share the directory.
	Alone  bool
	Rights *safefile.Rights
	// SetAside renames one partial checkpoint to partial/NAME.
	SetAside bool
	Report   func(job.Saved)
	// Say tells people what golaunch waits for.
	Say func(string)

	// wait waits for a while, unless ctx ends; tests replace it.
	wait func(ctx context.Context, d time.Duration) error
}

// leftover is the newest checkpoint of a directory, if it is partial and a program may load it.
type leftover struct {
	name    string
	finding checkpoint.Finding
	shared  bool
	// pointer is the file by which the program chooses its checkpoint. It is empty if the program
	// takes the newest.
	pointer string
	// byTime says that only the times of the files show that the checkpoint is partial.
	byTime bool
}

// Check reports the partial checkpoints. If they are to be set aside, no rank may run until Check
// returns.
func (l Leftovers) Check(ctx context.Context) {
	if l.wait == nil {
		l.wait = sleep
	}
	setAside := l.SetAside
	for _, dir := range l.Dirs {
		for {
			found, err := bounded(ctx, l.Rights, func(context.Context) (leftover, error) { return look(dir, l.Alone) })
			if err != nil && ctx.Err() == nil {
				l.Say(fmt.Sprintf("whether the newest checkpoint in %s is complete is not known: %v", dir, err))
			}
			if found.name == "" {
				break
			}
			ev := l.event(dir, found)
			if !setAside {
				l.Report(ev)
				break
			}
			setAside = false // set aside only one, in case golaunch wrongly takes this program's checkpoints for partial
			if err := l.setAside(ctx, dir, found); err != nil {
				ev.Why += "; it is not set aside: " + err.Error()
				l.Report(ev)
				break
			}
			ev.State = job.SaveSetAside
			l.Report(ev)
		}
	}
}

func (l Leftovers) event(dir string, found leftover) job.Saved {
	ev := l.Base
	ev.State, ev.Path, ev.Format, ev.Bytes = job.SaveLeft, path.Join(dir, found.name), found.finding.Format, found.finding.Bytes
	ev.Step, ev.Why = max(0, found.finding.Step), found.finding.Why
	return ev
}

// bounded runs f with the rights of a user, for a limited time: a file server may not answer.
func bounded[T any](ctx context.Context, rights *safefile.Rights, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	ctx, cancel := context.WithTimeoutCause(ctx, leftoverLimit, fmt.Errorf("its file system has not answered for %v", leftoverLimit))
	defer cancel()
	done := make(chan result, 1)
	go func() {
		var r result
		r.err = rights.Do(func() (err error) { r.v, err = f(ctx); return err })
		done <- r
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// look returns the newest checkpoint of a directory if its files prove that it is partial, unless
// the program chooses another checkpoint.
func look(dir string, alone bool) (leftover, error) {
	shared := isShared(dir)
	if !shared && !alone {
		return leftover{}, nil
	}
	fsys := dirFS(dir)
	name, err := checkpoint.Newest(fsys)
	if errors.Is(err, os.ErrNotExist) || name == "" {
		return leftover{}, nil
	} else if err != nil {
		return leftover{}, err
	}
	f := checkpoint.Inspect(fsys, name, checkpoint.Known{})
	pointer, chosen := checkpoint.Chosen(fsys, f)
	if f.State != checkpoint.Partial || f.Format == checkpoint.Other || !chosen {
		return leftover{}, nil
	}
	byTime := checkpoint.Inspect(fsys, name, checkpoint.Known{Copied: true}).State != checkpoint.Partial
	return leftover{name: name, finding: f, shared: shared, pointer: pointer, byTime: byTime}, nil
}

// setAside renames a leftover once nothing in it changes any more.
func (l Leftovers) setAside(ctx context.Context, dir string, found leftover) error {
	switch {
	case found.pointer != "":
		return fmt.Errorf("%s names it, which the program would then not find", found.pointer)
	case found.byTime:
		return errors.New("only the times of its files say that, which a copy changes")
	case found.finding.Format == "accelerate":
		return errors.New("accelerate fails if its directory contains anything but checkpoints; move it out of there")
	}
	still := settled
	if found.shared {
		still = settledShared
		l.Say(fmt.Sprintf("%s waits %v before its ranks start, to see whether %s still changes", l.Base.Node, still, path.Join(dir, found.name)))
	}
	if err := l.wait(ctx, still); err != nil {
		return err
	}
	_, err := bounded(ctx, l.Rights, func(ctx context.Context) (struct{}, error) {
		again, err := look(dir, l.Alone)
		switch {
		case err != nil:
			return struct{}{}, err
		case again.name != found.name || again.finding.Bytes != found.finding.Bytes || !again.finding.Newest.Equal(found.finding.Newest):
			return struct{}{}, errors.New("it still changes")
		}
		if pid := writerOf(path.Join(dir, found.name)); pid != 0 {
			return struct{}{}, fmt.Errorf("process %d has it open for writing", pid)
		}
		return struct{}{}, rename(ctx, dir, found.name)
	})
	return err
}

// aside is the directory beside the checkpoints where golaunch puts the partial ones. A new name
// beside the checkpoints would not suffice: torchtitan, Lightning, NeMo and others find the step in
// any name that contains it.
const aside = "partial"

// rename moves a checkpoint to aside. It fails if the name is taken there, or if the checkpoint's
// own name is a link. It also fails if ctx has ended, because ranks may then run.
func rename(ctx context.Context, dir, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	kind, to := st.Mode&unix.S_IFMT, path.Join(aside, name)
	if kind != unix.S_IFDIR && kind != unix.S_IFREG {
		return errors.New("it is a symbolic link")
	}
	if err := unix.Mkdirat(fd, aside, 0o777); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make the directory %s: %w", aside, err)
	}
	err = unix.Renameat2(fd, name, fd, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // NFS has no RENAME_NOREPLACE
		err = renameTo(fd, name, to, kind)
	}
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTEMPTY) {
		return fmt.Errorf("%s is there", to)
	}
	if err != nil {
		return fmt.Errorf("rename it to %s: %w", to, err)
	}
	return nil
}

// renameTo is for file systems without RENAME_NOREPLACE. A file gets its new name only if the name
// is free. A directory never replaces a directory with files.
func renameTo(fd int, name, to string, kind uint32) error {
	var st unix.Stat_t
	if err := unix.Fstatat(fd, to, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		return unix.EEXIST
	}
	if kind == unix.S_IFDIR {
		return unix.Renameat(fd, name, fd, to)
	}
	if err := unix.Linkat(fd, name, fd, to, 0); err != nil {
		return err
	}
	return unix.Unlinkat(fd, name, 0)
}

// writerOf returns a process of this machine that has a file of a checkpoint open for writing. It
// returns 0 if there is none.
func writerOf(at string) int {
	if real, err := filepath.EvalSymlinks(at); err == nil {
		at = real
	}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		for _, file := range written(pid) {
			if file == at || strings.HasPrefix(file, at+"/") {
				return pid
			}
		}
	}
	return 0
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
