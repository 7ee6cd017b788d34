// Package filetimer is the launcher's side of torch's file timers
// (torch/distributed/elastic/timer/file_based_local_timer.py).
//
// Before a piece of work, a process writes a deadline to a FIFO. If the work is not finished at the
// deadline, the launcher kills the process.
package filetimer

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Variable is the environment variable with the path of the FIFO. Enable is the variable that asks
// for a FIFO if it is 1.
const (
	Variable = "TORCHELASTIC_TIMER_FILE"
	Enable   = "TORCHELASTIC_ENABLE_FILE_TIMER"
)

const (
	// maxTimers bounds the number of timers that run at the same time.
	maxTimers = 1 << 12
	// maxLine is PIPE_BUF, in bytes: longer requests may be interleaved (pipe(7)).
	maxLine = 4096
)

// Expired is a timer that was not released in time.
type Expired struct {
	PID    int
	Scope  string
	Signal syscall.Signal
	Late   time.Duration
}

func (e Expired) String() string {
	return fmt.Sprintf("pid %d did not leave %q in time: its torch timer is over; it gets %s", e.PID, e.Scope, unix.SignalName(e.Signal))
}

// request is what torch's FileTimerClient writes: one JSON object on a line. A negative expiration
// releases the timer.
type request struct {
	PID        int     `json:"pid"`
	Scope      string  `json:"scope_id"`
	Expiration float64 `json:"expiration_time"`
	Signal     int     `json:"signal"`
}

type key struct {
	pid   int
	scope string
}

// Serve makes a FIFO. Until ctx ends, it sends each process that misses a deadline the signal that
// the process has chosen, or no signal if the number is 0 or less. It never touches a process that
// was not given this FIFO. It calls told for each process that it has sent a signal, and warn once
// for bad requests. When Serve returns, processes may use the FIFO; gone is closed when the FIFO
// has been removed.
func Serve(ctx context.Context, path string, told func(Expired), warn func(error)) (gone <-chan struct{}, err error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("make the timer file %s: %w", path, err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, fmt.Errorf("make the timer file %s: %w", path, err)
	}
	// The FIFO is open for writing too, so that reads never reach an end of file.
	fifo, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the timer file: %w", err), os.Remove(path))
	}
	t := &timers{fifo: fifo, told: told, warn: warn, running: map[key]request{}}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { _ = fifo.Close() }) // ends serve
	go func() {
		defer close(closed)
		t.serve(ctx)
		if stop() {
			_ = fifo.Close()
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			warn(fmt.Errorf("remove the timer file: %w", err))
		}
	}()
	return closed, nil
}

// timers are the timers of a FIFO.
type timers struct {
	fifo    *os.File
	told    func(Expired)
	warn    func(error)
	running map[key]request
	// late is the time at which serve noticed a missed deadline, or zero. unread is the number of
	// bytes that were in the FIFO at that time and were not read yet.
	late   time.Time
	unread int
	// bad says that warn was called for a bad request, and full that warn was called for too many
	// timers.
	bad, full bool
}

// serve takes requests until ctx has ended and the FIFO is closed.
func (t *timers) serve(ctx context.Context) {
	lines := bufio.NewReaderSize(t, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if err == nil {
			t.take(line)
			continue
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			t.nonsense(errors.New("it is too long"), line)
			for errors.Is(err, bufio.ErrBufferFull) { // the rest of the long line
				_, err = lines.ReadSlice('\n')
			}
		}
		if err != nil {
			if ctx.Err() == nil {
				t.warn(fmt.Errorf("the timer file %s is not read any more: %w", t.fifo.Name(), err))
			}
			return
		}
	}
}

func (t *timers) nonsense(err error, line []byte) {
	if !t.bad {
		t.warn(fmt.Errorf("a request in the timer file %s makes no sense: %w: %.80q", t.fifo.Name(), err, line))
	}
	t.bad = true
}

// take starts or releases a timer.
func (t *timers) take(line []byte) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	var r request
	err := json.Unmarshal(line, &r)
	if err == nil && r.PID <= 0 {
		err = fmt.Errorf("pid %d", r.PID)
	}
	if err != nil {
		t.nonsense(err, line)
		return
	}
	k := key{r.PID, r.Scope}
	switch _, known := t.running[k]; {
	case r.Expiration < 0:
		delete(t.running, k)
	case !known && len(t.running) >= maxTimers:
		if !t.full {
			t.warn(fmt.Errorf("more than %d torch timers run at a time on this node: the others are not watched", maxTimers))
		}
		t.full = true
	default:
		t.running[k] = r
	}
}

// Read reads requests, and kills processes at their deadlines. Before it kills, it reads everything
// that was written before the deadline: on a busy machine, the release of the timer may still be in
// the FIFO.
func (t *timers) Read(p []byte) (int, error) {
	raw, err := t.fifo.SyscallConn()
	if err != nil {
		return 0, err
	}
	for {
		if err := t.fifo.SetReadDeadline(t.first()); err != nil {
			return 0, err
		}
		n, err := t.fifo.Read(p)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.late = time.Time{}
			return n, err
		}
		if t.late.IsZero() {
			t.late = time.Now()
			if t.unread, err = control(raw, func(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.TIOCINQ) }); err != nil {
				return 0, err
			}
		}
		if t.unread > 0 {
			n, err := control(raw, func(fd int) (int, error) { return unix.Read(fd, p[:min(len(p), t.unread)]) })
			switch {
			case err == nil:
				t.unread -= n
				return n, nil
			case !errors.Is(err, unix.EAGAIN): // EAGAIN: the writer's bytes were read elsewhere
				return 0, err
			}
		}
		t.expire()
		t.late = time.Time{}
	}
}

// control calls do with a descriptor; do must not block.
func control(raw syscall.RawConn, do func(fd int) (int, error)) (n int, err error) {
	var failed error
	err = raw.Control(func(fd uintptr) { n, failed = do(int(fd)) })
	return n, cmp.Or(err, failed)
}

// first returns the earliest deadline; zero if there are no timers.
func (t *timers) first() time.Time {
	first := math.Inf(1)
	for _, r := range t.running {
		first = min(first, r.Expiration)
	}
	if math.IsInf(first, 1) {
		return time.Time{}
	}
	return at(first)
}

// at converts Python's time in seconds since 1970.
func at(seconds float64) time.Time {
	const far = 1 << 33 // the year 2242; a Duration since 1970 ends in 2262
	return time.UnixMicro(int64(min(seconds, far) * 1e6))
}

// expire kills each process that has missed a deadline, once, and drops its timers.
func (t *timers) expire() {
	missed := map[int]Expired{}
	for k, r := range t.running {
		late := t.late.Sub(at(r.Expiration))
		if late < 0 {
			continue
		}
		if e, ok := missed[k.pid]; !ok || r.Signal > 0 && (e.Signal <= 0 || late > e.Late) {
			missed[k.pid] = Expired{k.pid, k.scope, syscall.Signal(r.Signal), late}
		}
		delete(t.running, k)
	}
	for pid, e := range missed {
		if e.Signal > 0 && kill(e, t.fifo.Name()) {
			t.told(e)
		}
		for k := range t.running {
			if k.pid == pid {
				delete(t.running, k)
			}
		}
	}
}

// kill signals a process that was given the FIFO, and reports whether it did.
func kill(e Expired, path string) bool {
	p, err := os.FindProcess(e.PID) // uses a pidfd: the number may be reused
	if err != nil {
		return false
	}
	defer func() { _ = p.Release() }() // fails only if p is released already
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", e.PID))
	if err != nil || !strings.Contains("\x00"+string(env), "\x00"+Variable+"="+path+"\x00") {
		return false
	}
	return p.Signal(e.Signal) == nil
}
