package logs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

const (
	maxErrorFile = 1 << 20
	maxTraceback = 64 << 10
)

// Traceback returns the text that torch's @record wrote into the error file about the exception
// that ended the rank: the Python traceback, or else the message. It returns nothing without an
// error file, as after a signal or os._exit. The text is valid UTF-8 whose only control characters
// are newlines and tabs, and at most the last 64 KiB. An error file that is unreadable, over 1 MiB
// or in another format is an error.
func (r *Rank) Traceback() (string, error) {
	b, err := r.dir.readErrorFile(r.errorFile())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the error file of %s: %w", r.label(), err)
	}
	text, err := parseErrorFile(b)
	if err != nil {
		return "", fmt.Errorf("parse the error file of %s (%s): %w", r.label(), r.ErrorFile(), err)
	}
	return text, nil
}

// ErrorFile reads the error file of a rank, also under torchrun's name. The error is an
// fs.ErrNotExist if there is none.
func (d *Dir) ErrorFile(attempt, rank int) ([]byte, error) {
	if d.root == nil {
		return nil, fs.ErrNotExist
	}
	text, err := d.readErrorFile(fmt.Sprintf("attempt-%d/rank-%d.error.json", attempt, rank))
	if !errors.Is(err, fs.ErrNotExist) {
		return text, err
	}
	links, err := d.root.Glob(fmt.Sprintf("attempt_%d/*/stdout.log", attempt))
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		if to, err := d.root.Readlink(link); err == nil && path.Base(to) == fmt.Sprintf("rank-%d.stdout.log", rank) {
			return d.readErrorFile(path.Dir(link) + "/error.json")
		}
	}
	return nil, fs.ErrNotExist
}

// readErrorFile reads a file that the rank made, which may be of any kind. O_NONBLOCK keeps a FIFO
// from blocking the read.
func (d *Dir) readErrorFile(name string) ([]byte, error) {
	if d.root == nil {
		return nil, fs.ErrNotExist
	}
	f, err := d.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() || info.Size() > maxErrorFile {
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", f.Name(), maxErrorFile)
	}
	return io.ReadAll(io.LimitReader(f, maxErrorFile))
}

// parseErrorFile reads the format of
// torch/distributed/elastic/multiprocessing/errors/error_handler.py: "message" is an object with
// message and extraInfo.py_callstack, or the message itself.
func parseErrorFile(b []byte) (string, error) {
	var file struct{ Message json.RawMessage }
	if err := json.Unmarshal(b, &file); err != nil {
		return "", err
	}
	var text string
	if json.Unmarshal(file.Message, &text) != nil {
		var message struct {
			Message   string
			ExtraInfo struct {
				Stack string `json:"py_callstack"`
			}
		}
		if err := json.Unmarshal(file.Message, &message); err != nil {
			return "", err
		}
		if text = message.ExtraInfo.Stack; text == "" {
			text = message.Message
		}
	}
	return visibleLines(bytes.Split(bytes.TrimRight([]byte(text), "\r\n"), []byte{'\n'}), maxTraceback), nil
}
