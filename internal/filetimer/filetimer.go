// Package filetimer is the launcher's side of torch's file timers (torch/distributed/elastic/timer/file_based_local_timer.py): a process
// says in a FIFO by when it will have left a piece of work, and is killed when it has not.
package filetimer

import (
	"bufio"
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

// Variable names the FIFO to the processes that may use it, and Enable, when it is 1, asks for one.
const (
	Variable = "TORCHELASTIC_TIMER_FILE"
	Enable   = "TORCHELASTIC_ENABLE_FILE_TIMER"
)

const (
	// maxTimers bounds those that run at a time. A process that has more of them is in trouble anyway.
	maxTimers = 1 << 12
	// maxLine is PIPE_BUF, in bytes: a longer request would not arrive whole (pipe(7)).
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

// request is what torch's FileTimerClient writes, one JSON object on a line; a negative expiration releases the timer.
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

// Serve makes a FIFO and sends processes that miss a deadline the signal that they have chosen, until ctx ends; a signal of 0 or less lets
// the process be. It never touches a process that was not given this FIFO. Told hears of each, and warn of what is wrong with a request,
// once. Serve returns when processes may use the FIFO; gone is closed when it is removed again.
func Serve(ctx context.Context, path string, told func(Expired), warn func(error)) (gone <-chan struct{}, err error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("make the timer file %s: %w", path, err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, fmt.Errorf("make the timer file %s: %w", path, err)
	}
	// For writing too, so that it never ends.
	fifo, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the timer file: %w", err), os.Remove(path))
	}
	requests, closed := make(chan request), make(chan struct{})
	go func() {
		defer close(requests)
		read(fifo, requests, ctx.Done(), warn)
	}()
	go func() {
		defer close(closed)
		watch(ctx, path, requests, told, warn)
		_ = fifo.Close() // ends read
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			warn(fmt.Errorf("remove the timer file: %w", err))
		}
	}()
	return closed, nil
}

// read parses requests until the FIFO is closed.
func read(fifo *os.File, requests chan<- request, over <-chan struct{}, warn func(error)) {
	lines := bufio.NewScanner(fifo)
	lines.Buffer(nil, maxLine)
	bad := false
	for lines.Scan() {
		var r request
		err := json.Unmarshal(lines.Bytes(), &r)
		if err == nil && r.PID <= 0 {
			err = fmt.Errorf("pid %d", r.PID)
		}
		if err != nil {
			if !bad {
				warn(fmt.Errorf("a request in the timer file %s makes no sense: %w: %.80q", fifo.Name(), err, lines.Text()))
			}
			bad = true
			continue
		}
		select {
		case requests <- r:
		case <-over:
			return
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, os.ErrClosed) {
		warn(fmt.Errorf("the timer file %s is not read any more: %w", fifo.Name(), err))
	}
}

// watch kills at each deadline.
func watch(ctx context.Context, path string, requests <-chan request, told func(Expired), warn func(error)) {
	timers := map[key]request{}
	next := time.NewTimer(math.MaxInt64)
	full := false
	for {
		select {
		case <-ctx.Done():
			return
		case r, ok := <-requests:
			if !ok { // told by read
				requests = nil
				continue
			}
			k := key{r.PID, r.Scope}
			switch _, known := timers[k]; {
			case r.Expiration < 0:
				delete(timers, k)
			case !known && len(timers) >= maxTimers:
				if !full {
					warn(fmt.Errorf("more than %d torch timers run at a time on this node: the others are not watched", maxTimers))
				}
				full = true
			default:
				timers[k] = r
			}
		case <-next.C:
			expire(timers, path, told)
		}
		next.Reset(until(timers))
	}
}

// until is how long it is to the first deadline.
func until(timers map[key]request) time.Duration {
	first := math.Inf(1)
	for _, r := range timers {
		first = min(first, r.Expiration)
	}
	if math.IsInf(first, 1) {
		return math.MaxInt64
	}
	return time.Until(at(first))
}

// at is a time that Python counts in seconds since 1970.
func at(seconds float64) time.Time {
	const far = 1 << 33 // the year 2242; a Duration ends in 2262
	return time.UnixMicro(int64(min(seconds, far) * 1e6))
}

// expire kills each process that has missed a deadline, once, and forgets its timers.
func expire(timers map[key]request, path string, told func(Expired)) {
	missed := map[int]Expired{}
	now := time.Now()
	for k, r := range timers {
		late := now.Sub(at(r.Expiration))
		if late < 0 {
			continue
		}
		if e, ok := missed[k.pid]; !ok || r.Signal > 0 && (e.Signal <= 0 || late > e.Late) {
			missed[k.pid] = Expired{k.pid, k.scope, syscall.Signal(r.Signal), late}
		}
		delete(timers, k)
	}
	for pid, e := range missed {
		if e.Signal > 0 && kill(e, path) {
			told(e)
		}
		for k := range timers {
			if k.pid == pid {
				delete(timers, k)
			}
		}
	}
}

// kill signals a process that was given the FIFO, and says whether it was there.
func kill(e Expired, path string) bool {
	p, err := os.FindProcess(e.PID) // by a pidfd: the number may come to be another's
	if err != nil {
		return false
	}
	defer func() { _ = p.Release() }() // fails only when it is released already
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", e.PID))
	if err != nil || !strings.Contains("\x00"+string(env), "\x00"+Variable+"="+path+"\x00") {
		return false
	}
	return p.Signal(e.Signal) == nil
}
