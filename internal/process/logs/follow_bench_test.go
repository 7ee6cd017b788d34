package logs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/golaunch/golaunch/internal/process/console"
)

// BenchmarkWrote measures what possible followers add to the cost of each write of a log file.
func BenchmarkWrote(b *testing.B) {
	f := File{0, 3, console.Stdout}
	for _, followers := range []int{0, 1, 4} {
		b.Run(fmt.Sprint("followers=", followers), func(b *testing.B) {
			var h hub
			for range followers {
				h.join(newFollower(everything))
			}
			for b.Loop() {
				h.wrote(f)
			}
		})
	}
}

// BenchmarkFollow measures the cost of writing pieces of eight ranks' logs in turn and reading each
// piece back as soon as it is written: the longest pieces that a pump reads, and single lines.
func BenchmarkFollow(b *testing.B) {
	for _, size := range []int{100, console.MaxRead} {
		b.Run(fmt.Sprint("piece=", size), func(b *testing.B) { benchmarkFollow(b, size) })
	}
}

func benchmarkFollow(b *testing.B, size int) {
	const ranks = 8
	d := benchmarkDir(b)
	files := make([]*logFile, ranks)
	for i := range files {
		f := File{0, i, console.Stdout}
		files[i] = &logFile{open: func() (*os.File, error) { return openLog(d.root, f.path()) }, wrote: func() { d.hub.wrote(f) }}
	}
	r := d.Follow(everything, nil)
	piece := bytes.Repeat([]byte("x"), size)
	b.SetBytes(int64(size))
	for i := 0; b.Loop(); i++ {
		files[i%ranks].write(piece)
		if c, err := r.Next(b.Context()); err != nil || len(c.Data) != size {
			b.Fatal(len(c.Data), err)
		}
	}
	if err := r.Close(); err != nil {
		b.Error(err)
	}
	for _, f := range files {
		if err := f.close(); err != nil {
			b.Error(err)
		}
	}
}

// BenchmarkRead measures how fast existing output is read.
func BenchmarkRead(b *testing.B) {
	d := benchmarkDir(b)
	const ranks, size = 8, 8 << 20
	text := bytes.Repeat([]byte("x"), size)
	for i := range ranks {
		f, err := d.Create(File{0, i, console.Stdout}.path())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := f.Write(text); err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
	b.SetBytes(ranks * size)
	for b.Loop() {
		r := d.Read(everything, nil)
		n := 0
		for {
			c, err := r.Next(b.Context())
			if err == io.EOF {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			n += len(c.Data)
		}
		if err := r.Close(); err != nil || n != ranks*size {
			b.Fatal(n, err)
		}
	}
}

// benchmarkDir returns a directory in memory, so that no disk is measured.
func benchmarkDir(b *testing.B) *Dir {
	base, err := os.MkdirTemp("/dev/shm", "logs") //nolint:usetesting // memory
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(base) })
	d, err := OpenDir(base, "job1")
	if err != nil {
		b.Fatal(err)
	}
	if err := d.root.Mkdir("attempt-0", 0o700); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Close() })
	return d
}
