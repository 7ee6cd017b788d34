package logs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/process/console"
)

// BenchmarkRanks measures the cost for this process of eight ranks that write 100-byte lines as
// fast as they can. The output goes into files in memory, and with prefixes into a console whose
// reader throws it away. MB/cpu-s is the number of megabytes of output for one second of CPU time.
func BenchmarkRanks(b *testing.B) {
	for _, console := range []string{"cat", "null", "none"} {
		b.Run("console="+console, func(b *testing.B) { benchmarkRanks(b, console) })
	}
}

func benchmarkRanks(b *testing.B, console string) {
	const ranks, size = 8, 64 << 20
	base, err := os.MkdirTemp("/dev/shm", "logs") //nolint:usetesting // memory, so that no disk is measured
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(base) })
	lines := filepath.Join(base, "lines")
	line := strings.Repeat("x", 99) + "\n"
	if err := os.WriteFile(lines, bytes.Repeat([]byte(line), size/len(line)), 0o600); err != nil {
		b.Fatal(err)
	}
	written := int64(size / len(line) * len(line) * ranks)
	b.SetBytes(written)
	var used time.Duration
	for i := 0; b.Loop(); i++ {
		dir, err := OpenDir(base, fmt.Sprint("job", i))
		if err != nil {
			b.Fatal(err)
		}
		before := cpu(b)
		c, done := benchmarkConsole(b, console)
		var wg sync.WaitGroup
		for rank := range ranks {
			r, err := dir.Rank(RankOptions{Node: "n1", Rank: rank, Console: c, Prefix: fmt.Sprintf("[n1 r%02d] ", rank)})
			if err != nil {
				b.Fatal(err)
			}
			wg.Go(func() { benchmarkRank(b, r, lines) })
		}
		wg.Wait()
		done()
		used += cpu(b) - before
		if err := dir.Remove(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(written)*float64(b.N)/1e6/used.Seconds(), "MB/cpu-s")
}

func benchmarkRank(b *testing.B, r *Rank, lines string) {
	cmd := exec.Command("cat", lines)
	cmd.Stdout, cmd.Stderr = r.Stdout, r.Stderr
	err := cmd.Start()
	r.Started()
	if err != nil {
		b.Error(err)
		return
	}
	if err := cmd.Wait(); err != nil {
		b.Error(err)
	}
	if err := r.Close(context.Background()); err != nil {
		b.Error(err)
	}
}

func benchmarkConsole(b *testing.B, kind string) (*console.Console, func()) {
	if kind == "none" {
		return nil, func() {}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	out, wait := null, func() error { return nil }
	if kind == "cat" {
		r, w, err := os.Pipe()
		if err != nil {
			b.Fatal(err)
		}
		w.Fd() // puts w in blocking mode, as a shell's pipe is
		cat := exec.Command("cat")
		cat.Stdin, cat.Stdout = r, null
		if err := cat.Start(); err != nil {
			b.Fatal(err)
		}
		r.Close()
		out, wait = w, cat.Wait
	}
	var words bytes.Buffer
	c := console.New(out, &words)
	return c, func() {
		if err := c.Close(); err != nil || words.Len() > 0 {
			b.Errorf("%v: %s", err, words.String())
		}
		out.Close()
		if err := wait(); err != nil {
			b.Error(err)
		}
		null.Close()
	}
}

// cpu is the time that this process, without its children, has spent on CPUs.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
