package postmortem

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/launcher/report"
)

// readTail bounds the end of a log that is judged, in bytes.
const readTail = 256 << 10

// lastOf returns the end of a file, from the beginning of a line, and the number of earlier lines.
func lastOf(path string) (tail string, skipped int, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO must not block
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	if !info.Mode().IsRegular() {
		return "", 0, errors.New("it is not a plain file")
	}
	var lines counter
	if _, err := io.CopyN(&lines, f, max(0, info.Size()-readTail)); err != nil {
		return "", 0, err
	}
	data, err := io.ReadAll(io.LimitReader(f, readTail))
	return string(data), int(lines), err
}

// counter counts the lines that are written to it.
type counter int

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(bytes.Count(b, []byte{'\n'}))
	return len(b), nil
}

// newestRun returns the run that was written last in a directory of several runs, and nothing for
// the directory of a single run.
func newestRun(dir string) (newest string, err error) {
	if _, is := written(dir); is {
		return "", nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var last time.Time
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if at, is := written(path); e.IsDir() && is && !at.Before(last) {
			newest, last = path, at
		}
	}
	return newest, nil
}

// written returns when a run's directory was written last, and whether dir is the directory of a
// run.
func written(dir string) (last time.Time, is bool) {
	for _, pattern := range []string{"events.jsonl", "events-*.jsonl", "attempt-*"} {
		files, _ := filepath.Glob(filepath.Join(escape(dir), pattern)) // the pattern is well formed
		for _, file := range files {
			if info, err := os.Stat(file); err == nil {
				is = true
				if at := info.ModTime(); at.After(last) {
					last = at
				}
			}
		}
	}
	return last, is
}

func logsOf(dir string, attempt, rank int) []string {
	name := filepath.Join(dir, fmt.Sprintf("attempt-%d", attempt), fmt.Sprintf("rank-%d", rank))
	return []string{name + ".stderr.log", name + ".stdout.log"}
}

// listRanks returns the ranks that have logs of the last attempt.
func listRanks(dir string, code int) ([]report.Failure, error) {
	files, err := filepath.Glob(filepath.Join(escape(dir), "attempt-*", "rank-*.std*.log"))
	if err != nil {
		return nil, err
	}
	var last []report.Failure
	for _, file := range files {
		attempt, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(file)), "attempt-"))
		name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(file), "rank-"), ".")
		rank, err2 := strconv.Atoi(name)
		if err == nil && err2 == nil {
			last = later(last, report.Failure{Attempt: attempt, Rank: rank, Exit: report.Exit{Code: code}})
		}
	}
	slices.SortFunc(last, func(a, b report.Failure) int { return a.Rank - b.Rank })
	return slices.CompactFunc(last, func(a, b report.Failure) bool { return a.Rank == b.Rank }), nil
}

// escape returns a pattern that matches only the path itself.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
