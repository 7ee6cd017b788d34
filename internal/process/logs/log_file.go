package logs

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/process/console"
)

const retryAfter = time.Second

// logFile appends the raw bytes of one stream to a file. The first byte opens the file. It never
// fails, and a full disk never blocks it: it reports the first error to warn, then tries to write
// at most once per second, and marks the gap with a line in the file. It belongs to the goroutine
// of its pump.
type logFile struct {
	name  string
	open  func() (*os.File, error)
	warn  func(error)
	limit int64
	wrote func() // if set, is called after each write

	f      *os.File
	kept   int64 // bytes offered so far, up to limit
	lost   int64
	gap    int64 // bytes lost since the last successful write
	err    error
	failed time.Time
}

func (l *logFile) write(b []byte) {
	if l.limit > 0 {
		b = l.clip(b)
	}
	if len(b) == 0 {
		return
	}
	n := 0
	if l.gap == 0 || time.Since(l.failed) >= retryAfter {
		var err error
		if n, err = l.append(b); err != nil {
			l.fail(err)
		}
		if l.wrote != nil {
			l.wrote()
		}
	}
	l.lost += int64(len(b) - n)
	l.gap += int64(len(b) - n)
}

// keepMatching returns a function that writes the lines that contain one of the texts. It writes
// each line at once, so that lines of several ranks do not mix.
func (l *logFile) keepMatching(texts []string) func(prefix string, lines []byte) {
	return func(prefix string, lines []byte) {
		for len(lines) > 0 {
			line := lines[:console.LineLen(lines)]
			lines = lines[len(line):]
			if !slices.ContainsFunc(texts, func(text string) bool { return bytes.Contains(line, []byte(text)) }) {
				continue
			}
			text := slices.Concat([]byte(prefix), line)
			if line[len(line)-1] != '\n' {
				text = append(text, '\n')
			}
			l.write(text)
		}
	}
}

// clip cuts b at the limit and adds a line that reports the limit.
func (l *logFile) clip(b []byte) []byte {
	room := l.limit - l.kept
	if int64(len(b)) <= room {
		l.kept += int64(len(b))
		return b
	}
	if l.kept > l.limit {
		return nil
	}
	l.kept = l.limit + 1
	return fmt.Appendf(slices.Clone(b[:room]), "\ngolaunch: log limit of %d bytes reached, the rest is not kept\n", l.limit)
}

func (l *logFile) append(b []byte) (int, error) {
	if l.f == nil {
		f, err := l.open()
		if err != nil {
			return 0, err
		}
		l.f = f
	}
	if l.gap > 0 {
		if _, err := fmt.Fprintf(l.f, "\ngolaunch: %d bytes are missing here: %v\n", l.gap, l.err); err != nil {
			return 0, err
		}
		l.gap = 0
	}
	return l.f.Write(b)
}

func (l *logFile) fail(err error) {
	l.failed = time.Now()
	if l.err == nil {
		if l.err = err; l.warn == nil {
			return
		}
		l.warn(fmt.Errorf("write the %s: %w: the rank goes on without it", l.name, err))
	}
}

// close returns an error that says how many bytes are missing in the file.
func (l *logFile) close() error {
	if l.f != nil {
		if err := l.f.Close(); err != nil {
			l.fail(err)
		}
	}
	if l.err == nil {
		return nil
	}
	return fmt.Errorf("write the %s: %w (bytes lost: %d)", l.name, l.err, l.lost)
}
