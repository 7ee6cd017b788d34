package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/console"
)

// RankOptions says whose output it is, and where it goes.
type RankOptions struct {
	// Node is for messages. Rank is global; Attempt counts from 0.
	Node          string
	Rank, Attempt int
	// Console shows the output with Prefix before each line; nil does not show it. Of its streams those in Hidden are not shown,
	// and those in Bare without the prefix.
	Console      *console.Console
	Prefix       string
	Hidden, Bare console.Stream
	// Alone says that the console has no other rank: what this one writes is shown at once and as it is, where it has no prefix, so that
	// prompts and bars are there before their line ends.
	Alone bool
	// Alias, if set, is a directory in <dir> where stdout.log and stderr.log are links to the rank's logs, which are then there from
	// the start, and which has its error.json.
	Alias string
	// Filters are texts, by stream: a line that the console shows with the prefix and that has one of them is written, as it is shown, to
	// filtered_stdout.log or filtered_stderr.log beside the directory Alias too, which all ranks of the attempt here share.
	Filters map[console.Stream][]string
	// Limit is the most that is kept of each stream, in bytes; 0 keeps all.
	Limit int64
	// Exact has what leaves a pipe be in its file at that moment, so that who takes the pipe over after this process was killed, see
	// Resume, misses nothing and doubles nothing. Then there must be no Console.
	Exact bool
	// Warn, if set, is told the first error of each log file, from the goroutine that writes it; it must not block.
	Warn func(error)
}

// Rank is the output of one rank in one attempt.
type Rank struct {
	// Stdout and Stderr are what the rank writes to. They are in blocking mode.
	Stdout, Stderr *os.File

	dir      *Dir
	opts     RankOptions
	out, err *pump
}

// Rank starts to carry the output of a rank to <dir>/attempt-<n>/rank-<r>.stdout.log and .stderr.log, mode 0600. A file is made
// at its first byte; one that is there already, from an earlier run under the same job id, is appended to. An error file, a heartbeat or
// a notice from such a run is removed, and what the rank has left of all but its first and newest attempts. The error says on which node
// and rank no pipe, directory or file could be made.
func (d *Dir) Rank(opts RankOptions) (*Rank, error) {
	r := &Rank{dir: d, opts: opts}
	err := r.prepare()
	if Full(err) {
		if opts.Warn != nil {
			opts.Warn(fmt.Errorf("%w: the rank goes on without files", err))
		}
		r.dir = &Dir{job: d.job, whose: d.whose, beats: d.beats, beatName: d.beatName}
		r.opts.Exact, err = false, nil
	}
	if err == nil {
		if err = r.removeHeartbeat(); err != nil {
			err = fmt.Errorf("remove an old heartbeat of %s: %w", r.where(), err)
		}
	}
	if err != nil {
		return nil, err
	}
	if r.out, r.Stdout, err = newPump(d.whose.Job); err != nil {
		return nil, fmt.Errorf("carry the stdout of %s: %w", r.where(), err)
	}
	if r.err, r.Stderr, err = newPump(d.whose.Job); err != nil {
		return nil, errors.Join(fmt.Errorf("carry the stderr of %s: %w", r.where(), err), r.out.in.Close(), r.Stdout.Close())
	}
	r.run()
	return r, nil
}

// prepare makes the directory of the attempt, and removes what an earlier run has left there.
func (r *Rank) prepare() error {
	root := r.dir.root
	if root == nil {
		return nil
	}
	if err := r.pruneAttempts(); err != nil && r.opts.Warn != nil {
		r.opts.Warn(fmt.Errorf("remove the logs of old attempts of %s: %w", r.where(), err))
	}
	if err := root.Mkdir(r.attempt(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the log directory of %s: %w", r.where(), err)
	}
	for _, name := range []string{r.errorFile(), r.file("notice.json"), r.file("notice.json.ready")} {
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an old file of %s: %w", r.where(), err)
		}
	}
	if err := r.alias(); err != nil {
		return fmt.Errorf("link the log files of %s: %w", r.where(), err)
	}
	return nil
}

// Full says that a file system takes nothing more, which is no reason for a rank not to run.
func Full(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EROFS)
}

// Resume goes on with the output of a rank that another process, which is dead, began to carry with Exact. It takes over the
// descriptors of what [Rank.Ends] were there.
func (d *Dir) Resume(opts RankOptions, stdout, stderr int) (*Rank, error) {
	r := &Rank{dir: d, opts: opts, out: pumpFrom(stdout), err: pumpFrom(stderr)}
	err := errors.Join(unix.SetNonblock(stdout, true), unix.SetNonblock(stderr, true))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("resume the output of %s: %w", r.where(), err), r.out.in.Close(), r.err.in.Close())
	}
	r.run()
	return r, nil
}

// Ends are the ends of the rank's pipes that are read: of stdout, and of stderr.
func (r *Rank) Ends() []*os.File { return []*os.File{r.out.in, r.err.in} }

func (r *Rank) run() {
	r.connect(r.out, console.Stdout)
	r.connect(r.err, console.Stderr)
	if !r.opts.Exact {
		r.err.tail = new(tail)
	}
	if r.opts.Console != nil {
		r.opts.Console.RankStarts(r.opts.Rank)
	}
	go r.out.run()
	go r.err.run()
}

// connect sets where a pump's output goes.
func (r *Rank) connect(p *pump, s console.Stream) {
	name := r.file(s.String() + ".log")
	file := File{r.opts.Attempt, r.opts.Rank, s}
	p.file = &logFile{
		name:  fmt.Sprintf("%s log of %s (%s)", s, r.where(), filepath.Join(r.dir.path, name)),
		open:  func() (*os.File, error) { return openLog(r.dir.root, name) },
		warn:  r.opts.Warn,
		limit: r.opts.Limit,
		wrote: func() { r.dir.hub.wrote(file) },
	}
	if r.opts.Console != nil && r.opts.Hidden&s == 0 {
		o := console.SplitOptions{Source: console.Source{Attempt: r.opts.Attempt, Rank: r.opts.Rank, Stream: s}, Cancel: p.cancel}
		if r.opts.Bare&s == 0 {
			o.Prefix, o.Fold = r.opts.Prefix, true
			if texts := r.opts.Filters[s]; len(texts) > 0 {
				p.filtered = r.filteredLog(s)
				o.OnLines = p.filtered.keepMatching(texts)
			}
		}
		o.Raw = r.opts.Alone && o.Prefix == ""
		p.splitter = r.opts.Console.Split(o)
	}
	if r.opts.Exact {
		p.exact = true
		p.file.open = func() (*os.File, error) { return p.file.openExact(r.dir.root, name) }
	}
}

// filteredLog is the file for the lines of a stream that match a filter.
func (r *Rank) filteredLog(s console.Stream) *logFile {
	name := path.Join(path.Dir(r.opts.Alias), fmt.Sprintf("filtered_%s.log", s))
	return &logFile{
		name:  fmt.Sprintf("filtered %s of %s (%s)", s, r.where(), filepath.Join(r.dir.path, name)),
		open:  func() (*os.File, error) { return openLog(r.dir.root, name) },
		warn:  r.opts.Warn,
		limit: r.opts.Limit,
	}
}

// alias makes the links of Alias. What an earlier attempt or run has left there is replaced.
func (r *Rank) alias() error {
	if r.opts.Alias == "" {
		return nil
	}
	root := r.dir.root
	if err := root.MkdirAll(r.opts.Alias, 0o700); err != nil {
		return err
	}
	up := strings.Repeat("../", strings.Count(r.opts.Alias, "/")+1)
	for _, name := range []string{"stdout.log", "stderr.log"} {
		link := r.opts.Alias + "/" + name
		if err := root.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := root.Symlink(up+r.file(name), link); err != nil {
			return err
		}
		f, err := openLog(root, r.file(name))
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// openLog opens a file to append to, in a directory that is one user's alone; without one what is
// written is gone.
func openLog(root *safefile.Root, name string) (*os.File, error) {
	if root == nil {
		return os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	return root.OpenOwn(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

func (r *Rank) where() string   { return fmt.Sprintf("rank %d on %s", r.opts.Rank, r.opts.Node) }
func (r *Rank) attempt() string { return fmt.Sprintf("attempt-%d", r.opts.Attempt) }

func (r *Rank) file(suffix string) string {
	return fmt.Sprintf("%s/rank-%d.%s", r.attempt(), r.opts.Rank, suffix)
}

func (r *Rank) errorFile() string {
	if r.opts.Alias != "" {
		return r.opts.Alias + "/error.json"
	}
	return r.file("error.json")
}

// path is absolute; empty where there are no files.
func (r *Rank) path(name string) string {
	if r.dir.root == nil {
		return ""
	}
	return filepath.Join(r.dir.path, name)
}

// ErrorFile is the absolute path for TORCHELASTIC_ERROR_FILE:
// <dir>/attempt-<n>/rank-<r>.error.json, or that in Alias. It and the other two are empty where
// there are no files.
func (r *Rank) ErrorFile() string { return r.path(r.errorFile()) }

// NoticeFile is the absolute path for GOLAUNCH_NOTICE_FILE: <dir>/attempt-<n>/rank-<r>.notice.json.
func (r *Rank) NoticeFile() string { return r.path(r.file("notice.json")) }

// Notify puts a text where NoticeFile is, whole or not at all.
func (r *Rank) Notify(text []byte) error {
	name := r.file("notice.json")
	unfinished := name + ".new"
	root := r.dir.root
	if root == nil {
		return errNoFiles
	}
	if err := root.Remove(unfinished); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(unfinished, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(unfinished, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(unfinished))
	}
	return nil
}

var errNoFiles = errors.New("it has no files")

// Files are the names of the log files in the directory; one that nothing was written to is not there.
func (r *Rank) Files() []string { return []string{r.file("stdout.log"), r.file("stderr.log")} }

// Written is the number of bytes that the rank has written so far.
func (r *Rank) Written() int64 { return r.out.count.Load() + r.err.count.Load() }

// Wrote is how many bytes and lines the rank has written so far, and when it did last; zero if never. Lines are not counted where the output
// is exact.
func (r *Rank) Wrote() (bytes, lines int64, last time.Time) {
	lines = r.out.lines.Load() + r.err.lines.Load()
	if at := max(r.out.last.Load(), r.err.last.Load()); at > 0 {
		last = time.Unix(0, at)
	}
	return r.Written(), lines, last
}

// Started closes Stdout and Stderr in this process, once the rank has them.
func (r *Rank) Started() {
	// Closing a pipe loses nothing and fails only when it is closed already; a rank that was resumed has none.
	_ = r.Stdout.Close()
	_ = r.Stderr.Close()
}

// Flush returns when all that was in the pipes when it was called is in the files and handed to the console. A rank that has
// exited has then been heard, even if grandchildren hold its pipes. Its error is that of ctx: the console or the disk is slow.
func (r *Rank) Flush(ctx context.Context) error {
	if err := errors.Join(r.out.flush(ctx), r.err.flush(ctx)); err != nil {
		return fmt.Errorf("read the last output of %s: %w", r.where(), err)
	}
	return nil
}

// Tail is the last lines of stderr as far as it was read, see Flush: at most 40 lines and 8 KiB of valid UTF-8 without
// control characters but newlines and tabs. The question with which a person left pdb follows, if stdout ends with it.
func (r *Rank) Tail() string {
	t := r.err.tail
	if r.opts.Exact {
		t = r.readTail(console.Stderr)
	}
	return strings.TrimPrefix(t.text()+r.asked(), "\n")
}

// asked is pdb's question whether to end the program, from Python 3.14 on, after a newline, if that
// is the last line of stdout. The program then ends with code 1, and nothing else tells that from a
// failure.
func (r *Rank) asked() string {
	out := strings.TrimRight(r.readTail(console.Stdout).text(), "\n ")
	line := out[strings.LastIndexByte(out, '\n')+1:]
	if !strings.Contains(line, "Quitting pdb will kill the process") {
		return ""
	}
	return "\n" + line
}

// Close handles what the pipes still hold, whoever else has them open, and closes the files. When ctx ends before that the
// console misses the rest. The error says what is missing in the files. Close must be called once, when no process of the
// rank is left that should be heard.
func (r *Rank) Close(ctx context.Context) error {
	r.Started()
	err := errors.Join(r.out.close(ctx), r.err.close(ctx), r.removeHeartbeat())
	if r.opts.Console != nil {
		r.opts.Console.RankEnds(r.opts.Rank)
	}
	return err
}
