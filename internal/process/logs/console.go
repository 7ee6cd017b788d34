package logs

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
)

// Console owns golaunch's stdout and stderr. Only whole lines reach them, and no line is torn by another, even where both are
// the same terminal, pipe or file. Ranks' stdout goes to stdout; their stderr and golaunch's own words go to stderr. The output of a rank
// that is alone passes at once and as it is, and golaunch's words then begin a line of their own.
//
// A console that is slow holds ranks back and loses nothing. One that does not move for a second loses lines until it moves
// again; a line then says how many. One that is gone (EPIPE) is left alone, and the program is not ended by it.
//
// Of a line that overwrites itself with carriage returns the last text is shown. On a terminal the control characters that a rank writes are
// made visible, but for tabs and colours; elsewhere bytes pass as they are.
//
// A line that has no end yet, a prompt or a bar, is at the bottom of a terminal within 200 ms, with those of other ranks, as many as it has
// rows for. Elsewhere, and where TERM is dumb or not set, it is shown once it has stood for a second, or one that overwrites itself every ten.
type Console struct {
	out, err *lane
	// folding is nil where lines are not folded.
	folding *folding
	// bottom is the row of Status, which is made once.
	bottom *row
	status sync.Once
}

// NewConsole starts a console on two writers. Files are written with write(2), beside any buffer, so nobody else should write
// to them until Close.
func NewConsole(stdout, stderr io.Writer) *Console {
	out, err := newSink(stdout), newSink(stderr)
	c := &Console{err: newLane(Stderr, err, nil)}
	c.out = c.err
	if !out.same(err) {
		c.out = newLane(Stdout, out, c.err)
	}
	return c
}

func (c *Console) lane(s Stream) *lane {
	if s == Stdout {
		return c.out
	}
	return c.err
}

// Say prints words of golaunch's own on stderr, "golaunch: " before each line, behind all that was shown before. It never
// waits: 256 messages of up to 64 KiB are kept for a console that does not move, and those beyond are counted as lost lines.
func (c *Console) Say(format string, args ...any) {
	if !c.err.say(fmt.Sprintf(format, args...)) {
		c.err.lost.Add(1)
	}
}

// Live says that there is a terminal for [Console.Status].
func (c *Console) Live() bool { return c.err.live != nil }

// Status has a text stand at the bottom of a terminal, below the lines that have no end yet, until there is another one; nothing if it is
// empty. It does nothing elsewhere.
func (c *Console) Status(text string) {
	if c.err.live == nil {
		return
	}
	c.status.Do(func() { c.bottom = c.err.live.add(math.MaxInt) })
	c.err.unfinished(c.bottom, appendVisible(nil, []byte(text), true))
}

// Print is Say for one line, with its newline, that shall stand there as it is.
func (c *Console) Print(line []byte) {
	if !c.err.print(line) {
		c.err.lost.Add(1)
	}
}

// Relay shows the lines of another process that prefixes them itself, until r ends. It returns the error of r, and nil at the
// end of file. To end it while the pipe is held open by others, close r.
func (c *Console) Relay(r io.Reader, to Stream) error {
	v := view{lane: c.lane(to), stream: to, relays: c.folding}
	defer v.end()
	for {
		n, err := r.Read(v.room())
		v.add(n)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("relay %s: %w", to, err)
		}
	}
}

// Close writes what is queued and returns an error that says what was not shown. It waits while the reader moves, for a minute
// at most, and for five seconds when it does not. Nothing may be shown after it.
func (c *Console) Close() error {
	c.folding.flush()
	var err error
	if c.out != c.err {
		err = c.out.close()
	}
	return errors.Join(err, c.err.close())
}
