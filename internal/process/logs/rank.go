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

// RankOptions says which rank's output to carry, and where.
type RankOptions struct {
	// Node is the node's name in messages. Rank is global; Attempt counts from 0.
	Node          string
	Rank, Attempt int
	// Console shows the output with Prefix before each line; nil shows nothing. Streams in Hidden
	// are not shown. Streams in Bare have no prefix.
	Console      *console.Console
	Prefix       string
	Hidden, Bare console.Stream
	// Alone says that the console shows no other rank. Output without a prefix then passes
	// unchanged and at once, so that prompts and progress bars appear before their line ends.
	Alone bool
	// Alias, if set, is a directory in <dir>. It has the links stdout.log and stderr.log to the
	// rank's logs, and the rank's error.json. The logs then exist from the start.
	Alias string
	// Filters are texts by stream. A line that is shown with the prefix and contains one of the
	// texts is also written to filtered_stdout.log or filtered_stderr.log beside Alias. All ranks
	// of the attempt on this node share these two files.
	Filters map[console.Stream][]string
	// Limit bounds the log of each stream, in bytes; 0 means no bound.
	Limit int64
	// Exact puts bytes into the file at the moment they leave the pipe. If this process is killed,
	// another process that takes the pipe over with Resume neither misses nor repeats a byte. Exact
	// excludes a Console.
	Exact bool
	// Warn, if set, gets the first error of each log file from the goroutine that writes it. It
	// must not block.
	Warn func(error)
}

// Rank carries the output of one rank in one attempt.
type Rank struct {
	// Stdout and Stderr are the files that the rank writes to. They are in blocking mode.
	Stdout, Stderr *os.File

	dir      *Dir
	opts     RankOptions
	out, err *pump
}

// Rank starts to carry the output of a rank to <dir>/attempt-<n>/rank-<r>.stdout.log and
// .stderr.log, mode 0600. The first byte makes the file. Rank keeps the output of an earlier run
// with the same job ID, but removes that run's error file, heartbeat and notice. It also removes
// the rank's files of all attempts except the first and the newest.
func (d *Dir) Rank(opts RankOptions) (*Rank, error) {
	r := &Rank{dir: d, opts: opts}
	err := r.prepare()
	if Full(err) {
		if opts.Warn != nil {
			opts.Warn(fmt.Errorf("%w: the rank goes on without files", err))
		}
		r.dir = &Dir{job: d.job, access: d.access, beats: d.beats, beatName: d.beatName}
		r.opts.Exact, err = false, nil
	}
	if err == nil {
		if err = r.removeHeartbeat(); err != nil {
			err = fmt.Errorf("remove an old heartbeat of %s: %w", r.label(), err)
		}
	}
	if err != nil {
		return nil, err
	}
	if r.out, r.Stdout, err = newPump(d.access.Job); err != nil {
		return nil, fmt.Errorf("carry the stdout of %s: %w", r.label(), err)
	}
	if r.err, r.Stderr, err = newPump(d.access.Job); err != nil {
		return nil, errors.Join(fmt.Errorf("carry the stderr of %s: %w", r.label(), err), r.out.in.Close(), r.Stdout.Close())
	}
	r.run()
	return r, nil
}

// prepare makes the directory of the attempt and removes old files.
func (r *Rank) prepare() error {
	root := r.dir.root
	if root == nil {
		return nil
	}
	if err := r.pruneAttempts(); err != nil && r.opts.Warn != nil {
		r.opts.Warn(fmt.Errorf("remove the logs of old attempts of %s: %w", r.label(), err))
	}
	switch err := root.Mkdir(r.attempt(), 0o700); {
	case err == nil:
		r.dir.began.Store(r.opts.Attempt, true)
	case !errors.Is(err, fs.ErrExist):
		return fmt.Errorf("make the log directory of %s: %w", r.label(), err)
	}
	if err := r.removeOld(); err != nil {
		return fmt.Errorf("remove an old file of %s: %w", r.label(), err)
	}
	if err := r.alias(); err != nil {
		return fmt.Errorf("link the log files of %s: %w", r.label(), err)
	}
	return nil
}

// removeOld removes the files of an earlier run. If this run made the attempt's directory, there
// are no such files, and the rank saves a dozen system calls.
func (r *Rank) removeOld() error {
	if _, ours := r.dir.began.Load(r.opts.Attempt); ours && r.opts.Alias == "" {
		return nil
	}
	for _, name := range []string{r.errorFile(), r.file("notice.json"), r.file("notice.json.ready")} {
		if err := r.dir.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Full reports whether an error means that a file system is full or read-only. Ranks then run on
// without log files.
func Full(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EROFS)
}

// Resume continues the output of a rank that another process carried with Exact before that process
// died. It takes the descriptors that [Rank.Ends] returned there.
func (d *Dir) Resume(opts RankOptions, stdout, stderr int) (*Rank, error) {
	r := &Rank{dir: d, opts: opts, out: pumpFrom(stdout), err: pumpFrom(stderr)}
	err := errors.Join(unix.SetNonblock(stdout, true), unix.SetNonblock(stderr, true))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("resume the output of %s: %w", r.label(), err), r.out.in.Close(), r.err.in.Close())
	}
	r.run()
	return r, nil
}

// Ends returns the read ends of the pipes of stdout and stderr.
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
		name:  fmt.Sprintf("%s log of %s (%s)", s, r.label(), filepath.Join(r.dir.path, name)),
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
		name:  fmt.Sprintf("filtered %s of %s (%s)", s, r.label(), filepath.Join(r.dir.path, name)),
		open:  func() (*os.File, error) { return openLog(r.dir.root, name) },
		warn:  r.opts.Warn,
		limit: r.opts.Limit,
	}
}

// alias makes the links in Alias. It replaces links of an earlier attempt or run.
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

// openLog opens a file to append to, in a directory that belongs to one user alone. Without a
// directory, the file drops what is written.
func openLog(root *safefile.Root, name string) (*os.File, error) {
	if root == nil {
		return os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	return root.OpenOwn(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

func (r *Rank) label() string   { return fmt.Sprintf("rank %d on %s", r.opts.Rank, r.opts.Node) }
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

// path is absolute, and empty without log files.
func (r *Rank) path(name string) string {
	if r.dir.root == nil {
		return ""
	}
	return filepath.Join(r.dir.path, name)
}

// ErrorFile is the absolute path for TORCHELASTIC_ERROR_FILE:
// <dir>/attempt-<n>/rank-<r>.error.json, or error.json in Alias. Like the other paths it is empty
// without log files.
func (r *Rank) ErrorFile() string { return r.path(r.errorFile()) }

// NoticeFile is the absolute path for GOLAUNCH_NOTICE_FILE: <dir>/attempt-<n>/rank-<r>.notice.json.
func (r *Rank) NoticeFile() string { return r.path(r.file("notice.json")) }

// Notify writes the file NoticeFile atomically.
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

// Files returns the names of the log files in the directory. A stream without output has no file.
func (r *Rank) Files() []string { return []string{r.file("stdout.log"), r.file("stderr.log")} }

// Written is the number of bytes that the rank has written.
func (r *Rank) Written() int64 { return r.out.counts.bytes.Load() + r.err.counts.bytes.Load() }

// Wrote returns how many bytes and lines the rank has written, and when it last wrote; zero for
// never. It counts no lines of Exact output.
func (r *Rank) Wrote() (bytes, lines int64, last time.Time) {
	lines = r.out.counts.lines.Load() + r.err.counts.lines.Load()
	if at := max(r.out.counts.last.Load(), r.err.counts.last.Load()); at > 0 {
		last = time.Unix(0, at)
	}
	return r.Written(), lines, last
}

// Started closes Stdout and Stderr in this process, once the rank has them.
func (r *Rank) Started() {
	// This fails only if they are already closed; a resumed rank has none.
	_ = r.Stdout.Close()
	_ = r.Stderr.Close()
}

// Flush returns when everything that was in the pipes is in the files and with the console. Then
// all output of an exited rank is handled, even if grandchildren hold its pipes. If the console or
// the disk is too slow, the error is the error of ctx.
func (r *Rank) Flush(ctx context.Context) error {
	if err := errors.Join(r.out.flush(ctx), r.err.flush(ctx)); err != nil {
		return fmt.Errorf("read the last output of %s: %w", r.label(), err)
	}
	return nil
}

// Tail returns the last read lines of stderr: at most 40 lines and 8 KiB of valid UTF-8 whose only
// control characters are newlines and tabs. If stdout ends with pdb's closing question, Tail adds
// that question.
func (r *Rank) Tail() string {
	t := r.err.tail
	if r.opts.Exact {
		t = r.readTail(console.Stderr)
	}
	return strings.TrimPrefix(t.text()+r.pdbQuestion(), "\n")
}

// pdbQuestion returns a newline and the last line of stdout, if that line is the question with
// which pdb ends the program from Python 3.14 on. The exit code is then 1, and only the question
// distinguishes such an end from a failure.
func (r *Rank) pdbQuestion() string {
	out := strings.TrimRight(r.readTail(console.Stdout).text(), "\n ")
	line := out[strings.LastIndexByte(out, '\n')+1:]
	if !strings.Contains(line, "Quitting pdb will kill the process") {
		return ""
	}
	return "\n" + line
}

// Close handles everything that the pipes still hold, even if other processes hold them open, and
// closes the files. If ctx ends first, the console misses the remaining output. The error says how
// much is missing in the files. Call Close once, when all processes of the rank whose output
// matters have ended.
func (r *Rank) Close(ctx context.Context) error {
	r.Started()
	err := errors.Join(r.out.close(ctx), r.err.close(ctx), r.removeHeartbeat())
	if r.opts.Console != nil {
		r.opts.Console.RankEnds(r.opts.Rank)
	}
	return err
}
