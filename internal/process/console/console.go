// Package console shows the output of ranks and golaunch's own messages on stdout and stderr, as
// whole lines.
package console

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"
)

// Stream is one of the two outputs of a process, or a set of them: Stdout|Stderr means both, 0
// means none. torchrun has the same numbers (torch/distributed/elastic/multiprocessing/api.py,
// Std).
type Stream int

const (
	// Stdout is standard output.
	Stdout Stream = 1
	// Stderr is standard error.
	Stderr Stream = 2
)

// String is "stdout" or "stderr", as in the names of log files.
func (s Stream) String() string {
	if s == Stdout {
		return "stdout"
	}
	return "stderr"
}

// Source names one output of one rank.
type Source struct {
	Attempt, Rank int
	Stream        Stream
}

// Console owns golaunch's stdout and stderr. It writes only whole lines and never mixes two of
// them, even when both streams are the same terminal, pipe or file. The ranks' stdout goes to
// stdout; their stderr and golaunch's messages go to stderr. The output of a job's only rank passes
// unchanged and at once; golaunch's messages then start on a line of their own.
//
// A slow reader holds ranks back and loses nothing. A reader that takes nothing for a second loses
// lines until it reads again. A message then says how many lines were lost. A reader that is gone
// (EPIPE) does not end the program.
//
// Only the last text of a line that overwrites itself with carriage returns is shown. A terminal
// gets control characters in a visible form, except tabs and colours; pipes and files get all
// bytes.
//
// An unfinished line, such as a prompt or a progress bar, appears at the bottom of a terminal
// within 200 ms, below the unfinished lines of other ranks while there are enough rows. On pipes,
// files and dumb terminals, the console shows it once it has not changed for a second, or every ten
// seconds if it overwrites itself.
type Console struct {
	out, err *printer
	// folding is nil if lines are not folded.
	folding *folding
	// status is the row of Status; addStatus adds it once.
	status    *liveRow
	addStatus sync.Once
}

// New starts a console. It writes to files with write(2), past any buffer, so nothing else should
// write to them before Close.
func New(stdout, stderr io.Writer) *Console {
	out, err := newSink(stdout), newSink(stderr)
	c := &Console{err: newPrinter(Stderr, err, nil)}
	c.out = c.err
	if !out.same(err) {
		c.out = newPrinter(Stdout, out, c.err)
	}
	return c
}

func (c *Console) printer(s Stream) *printer {
	if s == Stdout {
		return c.out
	}
	return c.err
}

// SetPatience changes how long a rank waits for a reader that takes nothing: a second by default.
// It must be called before anything is shown.
func (c *Console) SetPatience(d time.Duration) { c.out.patience, c.err.patience = d, d }

// Say prints a message on stderr with "golaunch: " before each line. It never waits: the console
// keeps 256 messages of up to 64 KiB and counts others as lost lines.
func (c *Console) Say(format string, args ...any) {
	c.Print(c.err.messageLines(fmt.Sprintf(format, args...)))
}

// Print prints whole lines on stderr unchanged. Like [Console.Say], it never waits.
func (c *Console) Print(lines []byte) {
	if !c.err.print(lines) {
		c.err.lost.Add(1)
	}
}

// HasStatus reports whether [Console.Status] shows anything.
func (c *Console) HasStatus() bool { return c.err.live != nil }

// Status keeps a text at the bottom of a terminal, below all unfinished lines, until the next call.
// An empty text removes it. Without a terminal it does nothing.
func (c *Console) Status(text string) {
	if c.err.live == nil {
		return
	}
	c.addStatus.Do(func() { c.status = c.err.live.add(math.MaxInt) })
	c.err.setRow(c.status, AppendVisible(nil, []byte(text), true))
}

// Relay shows the output of another process, which prefixes its lines itself, until r ends. It
// returns nil at end of file and any other error of r. To stop Relay while other processes hold the
// pipe open, close r.
func (c *Console) Relay(r io.Reader, to Stream) error {
	s := Splitter{printer: c.printer(to), opts: SplitOptions{Source: Source{Stream: to}}, relays: c.folding}
	defer s.End()
	for {
		n, err := r.Read(s.Buffer())
		s.Add(n)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("relay %s: %w", to, err)
		}
	}
}

// Close writes everything that is queued. Its error names the output that could not be shown. It
// waits up to a minute for a slow reader, and five seconds for a reader that takes nothing. Nothing
// may be shown after Close.
func (c *Console) Close() error {
	c.folding.flush()
	var err error
	if c.out != c.err {
		err = c.out.close()
	}
	return errors.Join(err, c.err.close())
}
