// Package dl talks to NCCL itself: to the library libnccl, loaded without cgo, and to the RAS
// service that every process of an NCCL job runs.
package dl

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/golaunch/golaunch/internal/host/dylib"
)

// soname is the name under which programs link NCCL 2.
const soname = "libnccl.so.2"

// Library is a loaded libnccl. Only one goroutine at a time may use it.
type Library struct {
	handle     uintptr
	path       string
	getVersion func(*int32) int32
}

// Open loads the libnccl at path. If path is empty, it loads the libnccl.so.2 that the dynamic
// loader finds. The loader does not search Python's packages.
//
// Loading runs the library's code in this process, so a broken library can end the process. A
// process that must live on, such as an agent, should call Open in a short-lived child process.
func Open(path string) (*Library, error) {
	// dlerror returns the last failure on the thread that calls it, so the goroutine must stay on
	// its thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	handle, err := dylib.Open(cmp.Or(path, soname), dylib.Now|dylib.Local)
	if err != nil {
		return nil, fmt.Errorf("load NCCL: %w; PyTorch's is nvidia/nccl/lib/%s in its site-packages", err, soname)
	}
	l := &Library{handle: handle}
	if err := l.bind(); err != nil {
		return nil, errors.Join(fmt.Errorf("load NCCL from %s: %w", cmp.Or(path, soname), err), l.Close())
	}
	return l, nil
}

func (l *Library) bind() error {
	symbol, err := dylib.Symbol(l.handle, "ncclGetVersion")
	if err != nil {
		return err
	}
	dylib.Bind(&l.getVersion, symbol)
	l.path, err = fileAt(uint64(symbol))
	return err
}

// fileAt names the file that this process has mapped at the address.
func fileAt(addr uint64) (string, error) {
	all, err := mappings(os.Getpid())
	if err != nil {
		return "", err
	}
	for _, m := range all {
		if m.from <= addr && addr < m.to {
			return m.path, nil
		}
	}
	return "", fmt.Errorf("no file is mapped at %#x", addr)
}

// Path is the file that the library was loaded from, with symbolic links resolved.
func (l *Library) Path() string { return l.path }

// Version asks the library for its version. It needs no GPU.
func (l *Library) Version() (Version, error) {
	if l.handle == 0 {
		return Version{}, fmt.Errorf("ask %s for its version: it is closed", l.path)
	}
	var code int32
	if result := l.getVersion(&code); result != 0 {
		return Version{}, fmt.Errorf("ask %s for its version: ncclGetVersion returned %d", l.path, result)
	}
	return decode(code)
}

// Close unloads the library, unless the process uses it elsewhere. A second Close does nothing.
func (l *Library) Close() error {
	if l.handle == 0 {
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	handle := l.handle
	l.handle = 0
	if err := dylib.Close(handle); err != nil {
		return fmt.Errorf("unload NCCL from %s: %w", l.path, err)
	}
	return nil
}
