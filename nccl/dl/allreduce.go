package dl

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"
)

// Comm is a communicator: this process is one of several ranks that reduce together, each on a
// device of its own.
type Comm struct {
	nccl   collectives
	device *Device
	handle uintptr
	rank   int
	size   int
}

// UniqueID names a communicator. One rank makes the UniqueID and passes it to the others. It has
// the layout of ncclUniqueId.
type UniqueID struct{ Bytes [128]byte }

// collectives are the functions of nccl.h for a reduction.
type collectives struct {
	uniqueID    func(*UniqueID) int32
	errorString func(int32) string
	asyncError  func(comm uintptr, code *int32) int32
	allReduce   func(send, recv, count uintptr, datatype, op int32, comm, stream uintptr) int32
	destroy     func(comm uintptr) int32
	abort       func(comm uintptr) int32
	// initScalable needs NCCL 2.23, initConfig 2.14 and lastError 2.13; otherwise they are nil.
	initScalable func(comm *uintptr, size, rank, ids int32, id *UniqueID, config uintptr) int32
	initConfig   func(comm *uintptr, size int32, id UniqueID, rank int32, config uintptr) int32
	lastError    func(comm uintptr) string
}

const (
	float32Type = 7
	sumOp       = 0
)

func (l *Library) collectives() (c collectives, err error) {
	err = bind(l.handle, map[string]any{
		"ncclGetUniqueId":       &c.uniqueID,
		"ncclGetErrorString":    &c.errorString,
		"ncclCommGetAsyncError": &c.asyncError,
		"ncclAllReduce":         &c.allReduce,
		"ncclCommDestroy":       &c.destroy,
		"ncclCommAbort":         &c.abort,
	})
	if err != nil {
		return c, err
	}
	scalable := bind(l.handle, map[string]any{"ncclCommInitRankScalable": &c.initScalable})
	config := bind(l.handle, map[string]any{"ncclCommInitRankConfig": &c.initConfig})
	if scalable != nil && config != nil {
		return c, fmt.Errorf("%w; NCCL 2.14 or later is needed", config)
	}
	if bind(l.handle, map[string]any{"ncclGetLastError": &c.lastError}) != nil {
		c.lastError = func(uintptr) string { return "" }
	}
	return c, nil
}

// NewID returns the name of a new communicator. The ranks meet at a port of this process, which
// must live until all have joined. It needs no GPU.
func (l *Library) NewID() (id UniqueID, err error) {
	c, err := l.collectives()
	if err != nil {
		return id, fmt.Errorf("find the collectives of %s: %w", l.path, err)
	}
	return id, c.check("ncclGetUniqueId", c.uniqueID(&id), 0)
}

// Join makes this process a rank of the communicator id, from 0 to size-1. It returns when all
// ranks have joined, and waits for them without a limit.
func (l *Library) Join(d *Device, id UniqueID, rank, size int) (*Comm, error) {
	c := &Comm{device: d, rank: rank, size: size}
	var err error
	if c.nccl, err = l.collectives(); err != nil {
		return nil, fmt.Errorf("find the collectives of %s: %w", l.path, err)
	}
	unlock, err := c.current()
	if err != nil {
		return nil, err
	}
	defer unlock()
	// Without a configuration NCCL uses its default configuration (src/init.cc), and the call
	// blocks.
	if c.nccl.initScalable != nil {
		return c, c.nccl.check("ncclCommInitRankScalable", c.nccl.initScalable(&c.handle, int32(size), int32(rank), 1, &id, 0), 0)
	}
	return c, c.nccl.check("ncclCommInitRankConfig", c.nccl.initConfig(&c.handle, int32(size), id, int32(rank), 0), 0)
}

// current makes the device current on this thread. The goroutine keeps the thread until unlock.
func (c *Comm) current() (unlock func(), err error) {
	runtime.LockOSThread()
	if err := c.device.check("cuCtxSetCurrent", c.device.cuda.setCurrent(c.device.context)); err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	return runtime.UnlockOSThread, nil
}

// Close leaves the communicator. All ranks of the communicator must call it.
func (c *Comm) Close() error { return c.nccl.check("ncclCommDestroy", c.nccl.destroy(c.handle), 0) }

// Abort leaves a failed communicator without the other ranks.
func (c *Comm) Abort() error { return c.nccl.check("ncclCommAbort", c.nccl.abort(c.handle), 0) }

const (
	// large is the size, in floats, of the message that measures bandwidth, and small that of the
	// message that measures latency.
	large, small = 8 << 20, 2
	// times is how often each message is sent, after one message to warm up.
	times = 10
)

// ErrSum means that a sum over all ranks is wrong: something silently corrupts data.
var ErrSum = errors.New("the sum is wrong")

// Measure reduces over all ranks, which must call it together, and checks the sum of each element.
// latency is the time of an all-reduce of 8 bytes. bandwidth is the bus bandwidth in GB/s of an
// all-reduce of 32 MiB, as nccl-tests defines it (doc/PERFORMANCE.md): bytes divided by time, times
// 2(n-1)/n for n ranks. This makes it comparable for all n; for a single rank it is 0. Measure does
// not return while other ranks do not answer.
func (c *Comm) Measure() (latency time.Duration, bandwidth float64, err error) {
	unlock, err := c.current()
	if err != nil {
		return 0, 0, err
	}
	defer unlock()
	send, err := c.device.allocate(large, pattern(c.rank+1))
	if err != nil {
		return 0, 0, err
	}
	recv, err := c.device.allocate(large, nil)
	if err == nil {
		latency, bandwidth, err = c.measure(send, recv)
	}
	return latency, bandwidth, errors.Join(err, c.device.check("cuMemFree", c.device.cuda.free(send)),
		c.device.check("cuMemFree", c.device.cuda.free(recv)))
}

func (c *Comm) measure(send, recv uintptr) (latency time.Duration, bandwidth float64, err error) {
	if _, err := c.reduce(send, recv, large, 1); err != nil {
		return 0, 0, err
	}
	if err := c.verify(recv); err != nil {
		return 0, 0, err
	}
	if _, err := c.reduce(send, recv, small, 1); err != nil {
		return 0, 0, err
	}
	if latency, err = c.reduce(send, recv, small, times); err != nil {
		return 0, 0, err
	}
	each, err := c.reduce(send, recv, large, times)
	if err != nil {
		return 0, 0, err
	}
	n := float64(c.size)
	return latency, 4 * large / each.Seconds() / 1e9 * 2 * (n - 1) / n, nil
}

// reduce runs an all-reduce several times, and returns the time for one.
func (c *Comm) reduce(send, recv uintptr, count, times int) (each time.Duration, err error) {
	begin := time.Now()
	for range times {
		code := c.nccl.allReduce(send, recv, uintptr(count), float32Type, sumOp, c.handle, c.device.stream)
		if err := c.nccl.check("ncclAllReduce", code, c.handle); err != nil {
			return 0, err
		}
	}
	if err := c.wait(); err != nil {
		return 0, err
	}
	return time.Since(begin) / time.Duration(times), nil
}

// eager is how long wait polls without pauses.
const eager = 100 * time.Millisecond

// wait polls stream and communicator, as nccl-tests does (testStreamSynchronize in src/common.cu),
// because neither has an event to wait for. The stream of a failed communicator never becomes idle.
// After the time eager, wait pauses between polls, so that a rank that hangs does not use a whole
// CPU. A pause is a thousandth of the time so far, so it hardly changes the measured bandwidth.
func (c *Comm) wait() error {
	begin := time.Now()
	for {
		if waited := time.Since(begin); waited > eager {
			time.Sleep(waited / 1000)
		}
		idle, err := c.device.idle()
		if idle || err != nil {
			return err
		}
		var failed int32
		if err := c.nccl.check("ncclCommGetAsyncError", c.nccl.asyncError(c.handle, &failed), c.handle); err != nil {
			return err
		}
		if err := c.nccl.check("ncclAllReduce", failed, c.handle); err != nil {
			return err
		}
	}
}

// pattern returns the values that a rank adds: small whole numbers, so that sums are exact in
// floating point.
func pattern(factor int) []float32 {
	const period = 7
	values := make([]float32, large)
	for i := range period {
		values[i] = float32(factor * (1 + i))
	}
	for n := period; n < large; n *= 2 {
		copy(values[n:], values[:n])
	}
	return values
}

func (c *Comm) verify(recv uintptr) error {
	got, want := make([]float32, large), pattern(c.size*(c.size+1)/2)
	if err := c.device.read(got, recv); err != nil {
		return err
	}
	if bytes.Equal(raw(got), raw(want)) {
		return nil
	}
	i := 0
	for got[i] == want[i] && i < large-1 {
		i++
	}
	return fmt.Errorf("%w: element %d of an all-reduce over %d ranks is %g on GPU %d, not %g", ErrSum, i, c.size, got[i], c.device.ordinal, want[i])
}

func raw(values []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), 4*len(values))
}

func (c *collectives) check(call string, code int32, comm uintptr) error {
	if code == 0 {
		return nil
	}
	err := fmt.Errorf("%s: %s (%d)", call, c.errorString(code), code)
	if last := c.lastError(comm); last != "" {
		err = fmt.Errorf("%w: %s", err, last)
	}
	return err
}
