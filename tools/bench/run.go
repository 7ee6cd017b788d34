package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/tools/bench/record"
)

const (
	// giveUp bounds one command.
	giveUp = 2 * time.Minute
	// ending bounds the wait for a command that was killed.
	ending = 10 * time.Second
	// said bounds what an error shows of a command's output, in bytes.
	said = 32 << 10
	// runMark and workMark are environment variables of all processes of a run, and of one piece of
	// work in it.
	runMark, workMark = "BENCH_RUN", "BENCH_WORK"
)

// run is one run of the benchmark. One goroutine uses it, except for the commands.
type run struct {
	rec *record.Record
	// dir has all files of the run, and is removed with it.
	dir            string
	golaunch, rank string
	// rootful is true if this golaunch is an old version, which needs no flag to run ranks as root.
	rootful bool
	peers   peers
	pieces  int
}

// sample notes the time of a command, or a number.
func (r *run) sample(work, peer string, argv []string, value float64) {
	s := r.rec.Add(work, peer, r.shown(argv))
	s.Samples = append(s.Samples, value)
}

// timed notes the time of a command, or its failure. Failures after the end of the run do not
// count.
func (r *run) timed(ctx context.Context, work, peer string, argv []string, took time.Duration, err error) {
	if err != nil {
		r.failed(ctx, work, peer, argv, err)
		return
	}
	r.sample(work, peer, argv, milliseconds(took))
}

func (r *run) failed(ctx context.Context, work, peer string, argv []string, err error) {
	if ctx.Err() != nil {
		return
	}
	s := r.rec.Add(work, peer, r.shown(argv))
	if s.Failed++; s.Failed == 1 {
		s.Failure = strings.Join(strings.Fields(r.shown([]string{err.Error()})), " ")
		fmt.Printf("  %s of %s failed: %s\n", work, peer, s.Failure)
	}
}

func (r *run) skip(peer, works, reason string) {
	r.rec.Skipped = append(r.rec.Skipped, record.Skipped{Peer: peer, Works: works, Reason: reason})
	if works != "" {
		peer += " (" + works + ")"
	}
	fmt.Printf("skipped: %s: %s\n", peer, reason)
}

// shown returns a command without the directories of this machine.
func (r *run) shown(argv []string) string {
	line := strings.Join(argv, " ")
	here, _ := os.Getwd() // if unknown, the command does not contain it
	for _, dir := range []string{r.dir, filepath.Dir(r.peers.python), r.peers.ray, filepath.Join(here, scripts)} {
		if dir != "" && dir != "." {
			line = strings.ReplaceAll(line, dir+"/", "")
		}
	}
	return line
}

// piece marks everything that starts from now on as one piece of work, and returns the mark.
func (r *run) piece() (mark string, err error) {
	r.pieces++
	mark = fmt.Sprintf("%d-%d", os.Getpid(), r.pieces)
	return workMark + "=" + mark, os.Setenv(workMark, mark)
}

// exec runs a command to its end, with a limit, and times it. If the command fails, exec ends all
// processes that are left of it.
func (r *run) exec(ctx context.Context, limit time.Duration, argv []string) (took time.Duration, err error) {
	mark, err := r.piece()
	if err != nil {
		return 0, err
	}
	return r.execAs(ctx, limit, argv, mark)
}

// execAs does what exec does, for an earlier piece of work. The command's output goes to a file,
// because processes that it leaves running may keep a pipe open.
func (r *run) execAs(ctx context.Context, limit time.Duration, argv []string, mark string) (took time.Duration, err error) {
	return r.execInto(ctx, limit, argv, mark, filepath.Join(r.dir, "out"))
}

func (r *run) execInto(ctx context.Context, limit time.Duration, argv []string, mark, file string) (took time.Duration, err error) {
	out, err := os.Create(file)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(limited, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // only this program gets ^C
	cmd.Cancel = func() error { return kill(mark) }
	cmd.Stdout, cmd.Stderr = out, out
	begin := time.Now()
	err = cmd.Run()
	if took = time.Since(begin); err == nil {
		return took, nil
	}
	if limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("it had not ended after %v", limit)
	}
	return took, errors.Join(fmt.Errorf("%w: %s", err, lastWords(out.Name())), kill(mark))
}

// lastWords returns the last line with an error that a command has written to a file, or else the
// last line with a letter.
func lastWords(file string) string {
	text, _ := os.ReadFile(file) // reads what exists
	lines := strings.Split(strings.ToValidUTF8(string(text[max(0, len(text)-said):]), "?"), "\n")
	for _, has := range []func(string) bool{
		func(line string) bool { return strings.Contains(line, "Error: ") || strings.Contains(line, "error: ") },
		func(line string) bool { return strings.ContainsFunc(line, unicode.IsLetter) },
	} {
		for _, line := range slices.Backward(lines) {
			if has(line) {
				return strings.TrimSpace(line)
			}
		}
	}
	return "it said nothing"
}

// monotonic returns the time that ranks note, in nanoseconds.
func monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // Linux has this clock
	}
	return now.Nano()
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
