package procfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ReadFile is [os.ReadFile] for files that the kernel makes when they are read. It needs half as
// many system calls, because such a file has no size and can be read without waiting.
func ReadFile(path string) (text []byte, err error) {
	fd, err := again(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	text = make([]byte, 0, 1024)
	for {
		n, err := again(func() (int, error) { return unix.Read(fd, text[len(text):cap(text)]) })
		if err != nil {
			return text, &os.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return text, nil
		}
		text = text[:len(text)+n]
		if len(text) == cap(text) {
			text = append(text, 0)[:len(text)]
		}
	}
}

// again repeats a system call until no signal interrupts it: a read of lxcfs in a container can be
// interrupted.
func again(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
