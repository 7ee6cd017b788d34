package dl

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/golaunch/golaunch/internal/host/dylib"
)

// Device is a GPU with memory and a stream. It uses only the driver's libcuda. Only one goroutine
// at a time may use it. The driver may hang, so use a Device in a short-lived child process, as
// with [Open].
type Device struct {
	cuda    driver
	ordinal int
	handle  int32
	context uintptr
	stream  uintptr
}

// driver has libcuda's C functions (cuda.h, CUDA 11 and later). Addresses on the GPU are numbers
// here.
type driver struct {
	initialize  func(flags uint32) result
	deviceGet   func(device *int32, ordinal int32) result
	retain      func(context *uintptr, device int32) result
	release     func(device int32) result
	setCurrent  func(context uintptr) result
	synchronize func() result
	alloc       func(address *uintptr, bytes uintptr) result
	free        func(address uintptr) result
	toDevice    func(to uintptr, from unsafe.Pointer, bytes uintptr) result
	toHost      func(to unsafe.Pointer, from, bytes uintptr) result
	newStream   func(stream *uintptr, flags uint32) result
	query       func(stream uintptr) result
	errorName   func(code result, name **byte) result
}

type result int32

const (
	notReady    result = 600
	nonBlocking uint32 = 1
)

// OpenDevice opens the GPU with this number among those in CUDA_VISIBLE_DEVICES, in its primary
// context, which NCCL uses too.
func OpenDevice(ordinal int) (*Device, error) {
	d := &Device{ordinal: ordinal}
	runtime.LockOSThread() // CUDA makes a context current on one thread
	defer runtime.UnlockOSThread()
	if err := d.cuda.open(); err != nil {
		return nil, fmt.Errorf("load CUDA: %w; is the NVIDIA driver installed?", err)
	}
	for _, step := range []struct {
		name string
		do   func() result
	}{
		{"cuInit", func() result { return d.cuda.initialize(0) }},
		{"cuDeviceGet", func() result { return d.cuda.deviceGet(&d.handle, int32(ordinal)) }},
		{"cuDevicePrimaryCtxRetain", func() result { return d.cuda.retain(&d.context, d.handle) }},
		{"cuCtxSetCurrent", func() result { return d.cuda.setCurrent(d.context) }},
		{"cuStreamCreate", func() result { return d.cuda.newStream(&d.stream, nonBlocking) }},
	} {
		if err := d.check(step.name, step.do()); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (c *driver) open() error {
	lib, err := dylib.Open("libcuda.so.1", dylib.Now|dylib.Global)
	if err != nil {
		return err
	}
	return bind(lib, map[string]any{
		"cuInit":                       &c.initialize,
		"cuDeviceGet":                  &c.deviceGet,
		"cuDevicePrimaryCtxRetain":     &c.retain,
		"cuDevicePrimaryCtxRelease_v2": &c.release,
		"cuCtxSetCurrent":              &c.setCurrent,
		"cuCtxSynchronize":             &c.synchronize,
		"cuMemAlloc_v2":                &c.alloc,
		"cuMemFree_v2":                 &c.free,
		"cuMemcpyHtoD_v2":              &c.toDevice,
		"cuMemcpyDtoH_v2":              &c.toHost,
		"cuStreamCreate":               &c.newStream,
		"cuStreamQuery":                &c.query,
		"cuGetErrorName":               &c.errorName,
	})
}

// bind sets functions to the functions of a library with these names.
func bind(lib uintptr, functions map[string]any) error {
	for name, fn := range functions {
		symbol, err := dylib.Symbol(lib, name)
		if err != nil {
			return err
		}
		dylib.Bind(fn, symbol)
	}
	return nil
}

// Close releases the GPU. The caller must have freed its memory before.
func (d *Device) Close() error { return d.check("cuDevicePrimaryCtxRelease", d.cuda.release(d.handle)) }

// allocate returns memory for count floats. If values is not nil, it copies them into the memory.
func (d *Device) allocate(count int, values []float32) (address uintptr, err error) {
	if err := d.check("cuMemAlloc", d.cuda.alloc(&address, uintptr(4*count))); err != nil || values == nil {
		return address, err
	}
	if err := d.check("cuMemcpyHtoD", d.cuda.toDevice(address, unsafe.Pointer(&values[0]), uintptr(4*len(values)))); err != nil {
		return address, err
	}
	// A copy from pageable memory may still be in progress, and the stream does not wait for it.
	return address, d.check("cuCtxSynchronize", d.cuda.synchronize())
}

func (d *Device) read(values []float32, from uintptr) error {
	return d.check("cuMemcpyDtoH", d.cuda.toHost(unsafe.Pointer(&values[0]), from, uintptr(4*len(values))))
}

// idle reports whether the stream has done all its work.
func (d *Device) idle() (bool, error) {
	code := d.cuda.query(d.stream)
	if code == notReady {
		return false, nil
	}
	return true, d.check("cuStreamQuery", code)
}

func (d *Device) check(call string, code result) error {
	if code == 0 {
		return nil
	}
	var name *byte
	if d.cuda.errorName(code, &name) != 0 || name == nil {
		return fmt.Errorf("%s on GPU %d: CUDA error %d", call, d.ordinal, code)
	}
	return fmt.Errorf("%s on GPU %d: %s (%d)", call, d.ordinal, text(name), code)
}

// text converts a C string.
func text(s *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(s), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(s, n))
}
