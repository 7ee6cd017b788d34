package proc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// noop builds a program that ends at once, without a C library.
func noop(b *testing.B) string {
	b.Helper()
	source, ok := map[string]string{
		"amd64": `__asm__(".globl _start\n_start: mov $60,%eax\n xor %edi,%edi\n syscall");`,
		"arm64": `__asm__(".globl _start\n_start: mov x8,#93\n mov x0,#0\n svc #0");`,
	}[runtime.GOARCH]
	if !ok {
		return "/bin/true"
	}
	file := filepath.Join(b.TempDir(), "noop")
	cmd := exec.Command("cc", "-O2", "-static", "-nostdlib", "-x", "c", "-o", file, "-")
	cmd.Stdin = strings.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("build the no-op: %v: %s", err, out)
	}
	return file
}

// BenchmarkSpawn starts processes, a hundred in a scope, and waits for each; an operation starts
// one process.
func BenchmarkSpawn(b *testing.B) {
	for _, mib := range []int{0, 512} {
		for _, noCgroup := range []bool{false, true} {
			b.Run(fmt.Sprintf("resident=%dMiB/cgroup=%v", mib, !noCgroup), func(b *testing.B) {
				ballast := make([]byte, mib<<20)
				for i := 0; i < len(ballast); i += os.Getpagesize() {
					ballast[i] = 1
				}
				benchmarkSpawn(b, noCgroup)
				runtime.KeepAlive(ballast)
			})
		}
	}
}

func benchmarkSpawn(b *testing.B, noCgroup bool) {
	if !noCgroup {
		needCgroup(b)
	}
	path := noop(b)
	s := newSupervisor(b, Options{noCgroup: noCgroup})
	b.ResetTimer()
	for done := 0; done < b.N; done += 100 {
		sc := newTestScope(b, s)
		var wg sync.WaitGroup
		const callers = 4
		for i := range callers {
			wg.Go(func() {
				for n := i; n < min(100, b.N-done); n += callers {
					p, err := sc.Start(Command{Path: path, Args: []string{"noop"}})
					if err != nil {
						b.Error(err)
						return
					}
					p.Exit()
				}
			})
		}
		wg.Wait()
		must(b, sc.Close())
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ranks/s")
}

// BenchmarkTeardown300 stops 300 processes that ignore SIGTERM, a third of them in sessions of
// their own. The grace period of 50 ms is not in "over-grace-ms".
func BenchmarkTeardown300(b *testing.B) {
	const ranks, grace = 100, 50 * time.Millisecond
	for _, noCgroup := range []bool{false, true} {
		b.Run("cgroup="+strconv.FormatBool(!noCgroup), func(b *testing.B) {
			if !noCgroup {
				needCgroup(b)
			}
			s := newSupervisor(b, Options{Subreaper: true, noCgroup: noCgroup})
			var took time.Duration
			for range b.N {
				b.StopTimer()
				r, w, err := os.Pipe()
				must(b, err)
				sc := newTestScope(b, s)
				for range ranks {
					start(b, sc, shell(`trap "" TERM; sleep 1000 & setsid sh -c 'echo; exec sleep 1000'`, w))
				}
				must(b, w.Close())
				for range ranks {
					if _, err := r.Read(make([]byte, 1)); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
				begin := time.Now()
				must(b, sc.Stop(syscall.SIGTERM, false, grace))
				took += time.Since(begin) - grace
				b.StopTimer()
				must(b, sc.Close())
				must(b, r.Close())
				b.StartTimer()
			}
			b.ReportMetric(float64(took.Milliseconds())/float64(b.N), "over-grace-ms")
		})
	}
}

// BenchmarkRun measures the whole cost of supervision in a short run: a supervisor, a scope, one
// rank, and the end.
func BenchmarkRun(b *testing.B) {
	path := noop(b)
	for _, noCgroup := range []bool{false, true} {
		b.Run("cgroup="+strconv.FormatBool(!noCgroup), func(b *testing.B) {
			for range b.N {
				s, err := New(Options{Subreaper: true, noCgroup: noCgroup})
				must(b, err)
				start(b, newTestScope(b, s), Command{Path: path, Args: []string{"noop"}}).Exit()
				must(b, s.Close())
			}
		})
	}
}
