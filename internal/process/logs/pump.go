package logs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
)

// pipeSize is asked for each pipe, in bytes: it rides over short hiccups of the disk. More would soon use up what the kernel
// grants a user without privileges (fs.pipe-user-pages-soft, 64 MiB), and every pipe beyond that shrinks to two pages.
const pipeSize = 256 << 10

// pump reads one stream of one rank. Its goroutine owns everything but the channels.
type pump struct {
	in   *os.File
	fd   int
	file *logFile
	// count is of the bytes that were read, lines of the lines, unless they were spliced, and last is the Unix time of the newest in
	// nanoseconds.
	count, lines, last atomic.Int64
	tail               *tail // nil: none is kept
	view               view
	// exact pumps read only what is in the file by then, see RankOptions.Exact.
	exact bool
	asks  chan chan struct{}
	stop  chan struct{}
	// roused is sent to when the pump is to do more than read. bar says that what was read last overwrites itself, and that the pipe was then
	// empty; size is that of the pipe.
	roused chan struct{}
	bar    bool
	// moved is when an exact pump has last read or waited, filled when the pipe was last found full.
	moved, filled time.Time
	size          int
	hide          func() // ends waiting for the console
	done          chan struct{}
}

// newPump returns a pump that is not running, and the end of its pipe that the child writes to. That end is in blocking mode:
// programs do not expect a non-blocking stdout. The pipe is the child's user's, who may open it again as /dev/stdout.
func newPump(of *safefile.Rights) (*pump, *os.File, error) {
	var fds [2]int
	if err := of.Do(func() error { return unix.Pipe2(fds[:], unix.O_CLOEXEC) }); err != nil {
		return nil, nil, fmt.Errorf("make a pipe: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
	}
	// The kernel may refuse a larger pipe to a user who has many; the default works too.
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize)
	return pumpFrom(fds[0]), os.NewFile(uintptr(fds[1]), "|1"), nil
}

// pumpFrom returns a pump for the end of a pipe that is read; it is in non-blocking mode.
func pumpFrom(fd int) *pump {
	hide := make(chan struct{})
	size, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		size = page
	}
	return &pump{
		in:     os.NewFile(uintptr(fd), "|0"),
		fd:     fd,
		view:   view{hide: hide},
		asks:   make(chan chan struct{}, 1),
		stop:   make(chan struct{}),
		roused: make(chan struct{}, 1),
		size:   size,
		hide:   sync.OnceFunc(func() { close(hide) }),
		done:   make(chan struct{}),
	}
}

func (p *pump) run() {
	defer close(p.done)
	defer p.in.Close()
	for late := false; ; {
		if stand := p.view.stand(); late || !stand.IsZero() {
			_ = p.in.SetReadDeadline(stand) // fails only on a closed file, and only run closes it
			if p.answer() {
				return
			}
		}
		err := p.read()
		if late = errors.Is(err, os.ErrDeadlineExceeded); late {
			if stand := p.view.stand(); !stand.IsZero() && !time.Now().Before(stand) {
				p.stands()
			}
		} else if err != nil {
			p.view.end() // end of file: a pipe has no other error
			return
		} else {
			p.pace()
		}
	}
}

// stands shows a line that has no end yet, unless there is more of it: who reads may have been late.
func (p *pump) stands() {
	held, err := unix.IoctlGetInt(p.fd, fionread)
	if err == nil && held > 0 {
		_, err = p.take(p.fd, held)
	}
	if held == 0 || err != nil {
		p.view.showStanding()
	}
}

func (p *pump) read() error {
	if p.exact {
		return p.move()
	}
	room := p.view.room()
	n, err := p.in.Read(room)
	p.bar = n < len(room) && isBar(room[:n]) // and then the pipe is empty
	p.handle(room[:n])
	return err
}

// handle takes what was read to the view's room. The file comes first.
func (p *pump) handle(b []byte) {
	if len(b) == 0 {
		return
	}
	p.counted(len(b))
	p.lines.Add(count(b))
	p.file.write(b)
	if p.tail != nil {
		p.tail.write(b)
	}
	p.view.add(len(b))
}

func (p *pump) counted(n int) {
	if n > 0 {
		p.count.Add(int64(n))
		p.last.Store(time.Now().UnixNano())
	}
}

// answer serves those who woke the pump, and reports whether it was told to stop. The deadline is set anew before it looks, and set
// by them after they asked, so that no request is missed.
func (p *pump) answer() bool {
	for {
		select {
		case answered := <-p.asks:
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

// drain handles what the pipe holds now, and shows a line that has no end yet. Nobody else reads, so it never blocks.
func (p *pump) drain() {
	held, err := unix.IoctlGetInt(p.fd, fionread)
	for held > 0 && (err == nil || errors.Is(err, unix.EINTR)) {
		var n int
		n, err = p.take(p.fd, held)
		held -= n
	}
	p.view.end()
}

// take handles up to limit bytes of what the pipe holds.
func (p *pump) take(fd, limit int) (n int, err error) {
	if p.exact {
		// Only what cannot be spliced is read: a line that comes after an empty pipe was seen would be neither in the pipe nor in the file
		// if this process were killed then.
		if n, err = p.file.splice(fd, limit); !errors.Is(err, errNoSplice) {
			p.counted(n)
			return n, err
		}
	}
	room := p.view.room()
	n, err = unix.Read(fd, room[:min(limit, len(room))])
	n = max(n, 0)
	p.handle(room[:n])
	return n, err
}

// wake makes the pump's read return at once.
func (p *pump) wake() {
	_ = p.in.SetReadDeadline(time.Unix(1, 0)) // fails once the pump is done, and then done is closed
	select {
	case p.roused <- struct{}{}:
	default:
	}
}

func (p *pump) flush(ctx context.Context) error {
	answered := make(chan struct{})
	select {
	case p.asks <- answered:
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

// close ends the pump. When ctx ends first, the console misses the rest; the file gets it.
func (p *pump) close(ctx context.Context) error {
	close(p.stop)
	p.wake()
	select {
	case <-p.done:
		return p.closeFiles()
	case <-ctx.Done():
	}
	p.hide()
	select {
	case <-p.done:
		return p.closeFiles()
	case <-time.After(lastWrite):
		return fmt.Errorf("write the %s: still busy: is the file system reachable?", p.file.name)
	}
}

func (p *pump) closeFiles() error {
	if p.view.filter == nil {
		return p.file.close()
	}
	return errors.Join(p.file.close(), p.view.filter.file.close())
}

// lastWrite bounds the wait for a file system that does not answer.
const lastWrite = 2 * time.Second
