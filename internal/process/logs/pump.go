package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/console"
)

// pipeSize, in bytes, is enough for short delays of the disk. Larger pipes would soon exceed the
// limit of an unprivileged user (fs.pipe-user-pages-soft, 64 MiB). Beyond the limit, every further
// pipe has only two pages.
const pipeSize = 256 << 10

// counts may be read by any goroutine.
type counts struct {
	bytes atomic.Int64
	// lines does not count spliced lines.
	lines atomic.Int64
	// last is the Unix time of the last read in nanoseconds.
	last atomic.Int64
}

// pump reads one stream of one rank. Its goroutine owns everything but the channels.
type pump struct {
	in   *os.File
	fd   int
	file *logFile
	// filtered gets the lines that match one of RankOptions.Filters; nil without filters.
	filtered *logFile
	counts   counts
	tail     *tail // nil if no tail is kept
	splitter console.Splitter
	// exact writes bytes to the file before they leave the pipe, see RankOptions.Exact.
	exact bool

	flushes chan chan struct{}
	stop    chan struct{}
	// woken gets a value when the pump must do more than read.
	woken  chan struct{}
	pacing pacing
	// giveUp closes cancel, which ends waiting for the console.
	giveUp func()
	cancel <-chan struct{}
	done   chan struct{}
}

// newPump returns a pump that is not running, and the end of its pipe for the child. That end is in
// blocking mode, as programs expect of stdout. The pipe belongs to the child's user, who may open
// it again as /dev/stdout.
func newPump(of *safefile.Rights) (*pump, *os.File, error) {
	var fds [2]int
	if err := of.Do(func() error { return unix.Pipe2(fds[:], unix.O_CLOEXEC) }); err != nil {
		return nil, nil, fmt.Errorf("make a pipe: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
	}
	// The kernel may refuse a larger pipe to a user with many pipes; the default size works too.
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize)
	return pumpFrom(fds[0]), os.NewFile(uintptr(fds[1]), "|1"), nil
}

// pumpFrom returns a pump for the read end of a pipe, which must be in non-blocking mode.
func pumpFrom(fd int) *pump {
	cancel := make(chan struct{})
	size, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		size = unix.Getpagesize()
	}
	return &pump{
		in:      os.NewFile(uintptr(fd), "|0"),
		fd:      fd,
		cancel:  cancel,
		flushes: make(chan chan struct{}, 1),
		stop:    make(chan struct{}),
		woken:   make(chan struct{}, 1),
		pacing:  pacing{size: size},
		giveUp:  sync.OnceFunc(func() { close(cancel) }),
		done:    make(chan struct{}),
	}
}

func (p *pump) run() {
	defer close(p.done)
	defer p.in.Close()
	for late := false; ; {
		if stand := p.splitter.PartialAt(); late || !stand.IsZero() {
			_ = p.in.SetReadDeadline(stand) // fails only on a closed file, which only run closes
			if p.answer() {
				return
			}
		}
		err := p.read()
		if late = errors.Is(err, os.ErrDeadlineExceeded); late {
			if stand := p.splitter.PartialAt(); !stand.IsZero() && !time.Now().Before(stand) {
				p.showPartial()
			}
		} else if err != nil {
			p.splitter.End() // this is the end of file: a pipe has no other error
			return
		} else {
			p.pace()
		}
	}
}

// showPartial shows an unfinished line unless the pipe has more of the line: this goroutine may be
// late.
func (p *pump) showPartial() {
	held, err := unix.IoctlGetInt(p.fd, unix.TIOCINQ)
	if err == nil && held > 0 {
		_, err = p.take(p.fd, held)
	}
	if held == 0 || err != nil {
		p.splitter.ShowPartial()
	}
}

func (p *pump) read() error {
	if p.exact {
		return p.move()
	}
	room := p.splitter.Buffer()
	n, err := p.in.Read(room)
	p.pacing.overwrites = n < len(room) && console.Overwrites(room[:n]) // a short read: the pipe is empty
	p.handle(room[:n])
	return err
}

// handle writes what was read into the splitter's buffer, first to the file.
func (p *pump) handle(b []byte) {
	if len(b) == 0 {
		return
	}
	p.counted(len(b))
	p.counts.lines.Add(int64(bytes.Count(b, []byte{'\n'})))
	p.file.write(b)
	if p.tail != nil {
		p.tail.write(b)
	}
	p.splitter.Add(len(b))
}

func (p *pump) counted(n int) {
	if n > 0 {
		p.counts.bytes.Add(int64(n))
		p.counts.last.Store(time.Now().UnixNano())
	}
}

// answer serves the requests of goroutines that woke the pump, and reports whether it must stop.
// run sets the read deadline before it calls answer, and other goroutines set it after their
// request, so the pump misses no request.
func (p *pump) answer() bool {
	for {
		select {
		case answered := <-p.flushes:
			p.drain()
			close(answered)
			continue
		default:
		}
		select {
		case <-p.stop:
			p.drain()
			return true
		default:
			return false
		}
	}
}

// drain handles everything that the pipe holds now and shows an unfinished line. No other process
// reads the pipe, so drain never blocks.
func (p *pump) drain() {
	held, err := unix.IoctlGetInt(p.fd, unix.TIOCINQ)
	for held > 0 && (err == nil || errors.Is(err, unix.EINTR)) {
		var n int
		n, err = p.take(p.fd, held)
		held -= n
	}
	p.splitter.End()
}

// take handles up to limit bytes from the pipe.
func (p *pump) take(fd, limit int) (n int, err error) {
	if p.exact {
		// Do not read bytes that can be spliced: if this process were killed after the read, they
		// would be neither in the pipe nor in the file.
		if n, err = p.file.splice(fd, limit); !errors.Is(err, errNoSplice) {
			p.counted(n)
			return n, err
		}
	}
	room := p.splitter.Buffer()
	n, err = unix.Read(fd, room[:min(limit, len(room))])
	n = max(n, 0)
	p.handle(room[:n])
	return n, err
}

// wake makes the pump's read return at once.
func (p *pump) wake() {
	_ = p.in.SetReadDeadline(time.Unix(1, 0)) // fails once the pump is done, and then done is closed
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

func (p *pump) flush(ctx context.Context) error {
	answered := make(chan struct{})
	select {
	case p.flushes <- answered:
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	p.wake()
	select {
	case <-answered:
	case <-p.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// close ends the pump. If ctx ends first, the console misses the remaining output; the file still
// gets all output.
func (p *pump) close(ctx context.Context) error {
	close(p.stop)
	p.wake()
	select {
	case <-p.done:
		return p.closeFiles()
	case <-ctx.Done():
	}
	p.giveUp()
	select {
	case <-p.done:
		return p.closeFiles()
	case <-time.After(lastWrite):
		return fmt.Errorf("write the %s: still busy: is the file system reachable?", p.file.name)
	}
}

func (p *pump) closeFiles() error {
	if p.filtered == nil {
		return p.file.close()
	}
	return errors.Join(p.file.close(), p.filtered.close())
}

// lastWrite bounds the wait for an unresponsive file system.
const lastWrite = 2 * time.Second
