package gpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// fakeReadings are the readings of testdata/nvml.c's GPUs for the nth question.
func fakeReadings(n uint64) []Reading {
	nan := math.NaN()
	var most []Holder // the driver does not report the holders' memory
	for i := range maxHolders {
		most = append(most, Holder{5000 + i, -1})
	}
	return []Reading{
		{
			UUID: "GPU-8f000000-0000", Use: 0.37, Memory: 37688705024, MemoryTotal: 150754820096,
			Power: 301500, PowerLimit: 700000, Temperature: 61,
			Holders: most,
		},
		{
			UUID: "GPU-0f000000-0000", Use: 1, Memory: 37688705024, MemoryTotal: 150754820096,
			Power: 650251, PowerLimit: 700001, Temperature: 84,
			Holders: []Holder{{4411, -1}},
		},
		{UUID: "MIG-aa000000-0000", Use: nan, Power: 55125, PowerLimit: 700000, Temperature: 33},
		{
			UUID: "MIG-bb000000-0000", Use: nan, Memory: 2617245696, MemoryTotal: 10468982784,
			Power: 55125, PowerLimit: 700000, Temperature: 33, Holders: []Holder{{77, -1}},
		},
	}
}

// oldReadings are the same readings from an old driver.
var oldReadings = func() []Reading {
	all := fakeReadings(0)
	for i, r := range all {
		all[i] = Reading{UUID: r.UUID, Use: math.NaN(), Memory: r.Memory, MemoryTotal: r.MemoryTotal, Holders: r.Holders}
	}
	return all
}()

var compileOld = sync.OnceValues(func() (string, error) {
	dir, err := compileDriver()
	if err != nil {
		return "", err
	}
	old := filepath.Join(dir, "old")
	if err := os.Mkdir(old, 0o700); err != nil {
		return "", err
	}
	return old, compileInto(old, "-DOLD")
})

// installOld is install for a driver that lacks the functions that an old driver may lack.
func installOld(t testing.TB) {
	t.Helper()
	dir, err := compileOld()
	if err != nil {
		t.Fatalf("build the old fake driver: %v", err)
	}
	t.Setenv("LD_LIBRARY_PATH", dir)
}

// faults returns a function that gives a running driver a fault.
func faults(t *testing.T) (set func(fault string)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fault")
	t.Setenv("FAKE_NVML_FILE", path)
	set = func(fault string) {
		if err := os.WriteFile(path, []byte(fault), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set("")
	return set
}

// meter returns a meter that is closed at the end of the test.
func meter(t testing.TB) *Meter {
	m := NewMeter()
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// works makes a meter read for the nth time with the same process.
func (m *Meter) works(t *testing.T, n uint64) {
	t.Helper()
	got, err := m.Read(t.Context())
	// The texts by %v are compared, because NaN does not equal NaN.
	if want := fakeReadings(n); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got %+v (%v), want %+v", got, err, want)
	}
}

// fails makes a meter read, which must end with an error.
func (m *Meter) fails(t *testing.T, ctx context.Context, want string) {
	t.Helper()
	if got, err := m.Read(ctx); err == nil || !strings.HasPrefix(err.Error(), want) || got != nil {
		t.Fatalf("got %v (%v), want %q", got, err, want)
	}
}

func within(t *testing.T, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// alive reports whether a process is there, perhaps as a zombie.
func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestMeterReadsThroughOneProcess(t *testing.T) {
	install(t, "")
	m := meter(t)
	m.works(t, 1)
	pid := m.child.cmd.Process.Pid
	m.works(t, 2)
	m.works(t, 3)
	if m.child.cmd.Process.Pid != pid {
		t.Error("it started another one")
	}
}

func TestMeterServesSeveral(t *testing.T) {
	install(t, "")
	m := meter(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if got, err := m.Read(t.Context()); err != nil || len(got) != len(fake) {
				t.Errorf("got %v (%v)", got, err)
			}
		})
	}
	all.Wait()
	m.works(t, 9)
}

// A driver may start a daemon, which keeps the child's standard output open.
func TestMeterWaitsForNoDaemon(t *testing.T) {
	w := wedged(t, "daemon")
	m := meter(t)
	m.works(t, 1)
	w.held()
	kill(t, m, unix.SIGKILL)
	<-m.child.gone
	m.works(t, 1)
}

func TestMeterKillsAHangingDriver(t *testing.T) {
	w := wedged(t, "")
	set := faults(t)
	m := meter(t)
	m.works(t, 1)
	set("hang in use")
	m.fails(t, within(t, 2*time.Second), "the NVIDIA driver did not answer within ")
	w.held()
	w.released()
	set("")
	m.works(t, 1)
}

func TestMeterReplacesAStoppedProcess(t *testing.T) {
	install(t, "")
	m := meter(t)
	m.works(t, 1)
	kill(t, m, unix.SIGSTOP)
	m.fails(t, within(t, time.Second), "the NVIDIA driver did not answer within ")
	m.works(t, 1)
}

// A Read never notices that the process was killed before it, whether the process has already ended
// or not.
func TestMeterReplacesAKilledProcess(t *testing.T) {
	install(t, "")
	m := meter(t)
	m.works(t, 1)
	for i := range 20 {
		killed := m.child
		kill(t, m, unix.SIGKILL)
		if i%2 == 0 {
			<-killed.gone
		}
		m.works(t, 1)
		if m.child == killed || m.rest.failures > 0 {
			t.Fatalf("the same process, or a failure: %+v", m.rest)
		}
	}
}

func kill(t *testing.T, m *Meter, sig unix.Signal) {
	t.Helper()
	if err := unix.Kill(m.child.cmd.Process.Pid, sig); err != nil {
		t.Fatal(err)
	}
}

// A driver that takes long to open is opened in the end, no matter how short each Read is.
func TestMeterWaitsForASlowDriver(t *testing.T) {
	w := wedged(t, "slow")
	w.reader.Close()
	w.writer.Close()
	m := meter(t)
	var child *meterChild
	for reads := 0; reads < 2*tolerated || child == nil; reads++ {
		// Some Reads end before they ask.
		if got, err := m.Read(within(t, 5*time.Millisecond)); got != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v (%v), want %v", got, err, context.DeadlineExceeded)
		}
		if child == nil {
			child = m.child
		}
	}
	m.fails(t, within(t, time.Second), "the NVIDIA driver is still being opened: context deadline exceeded; hint: ")
	// OpenFile returns once the child has opened the other end.
	fifo, err := os.OpenFile(os.Getenv("FAKE_NVML_FIFO"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer fifo.Close()
	m.works(t, 1)
	if m.child != child {
		t.Error("it did not wait for the first process")
	}
}

// After 10 s no Read waits for the opening any more.
func TestMeterGivesUpOpening(t *testing.T) {
	w := wedged(t, "hang")
	m := meter(t)
	m.fails(t, within(t, 2*time.Second), "the NVIDIA driver is still being opened: ")
	w.held()
	if m.child.doomed || m.rest.failures != 0 {
		t.Fatal("given up at once")
	}
	m.child.started = m.child.started.Add(-patience)
	m.fails(t, within(t, time.Second), "the NVIDIA driver did not answer within ")
	w.released()
	t.Setenv("FAKE_NVML", "")
	m.works(t, 1)
}

// While a process that cannot be killed lives, no other process is started, and each Read and Close
// ends soon.
func TestMeterStartsNoOtherBesideAnUnkillableProcess(t *testing.T) {
	install(t, "")
	synctest.Test(t, func(t *testing.T) {
		m, begin := NewMeter(), time.Now()
		stuck := &meterChild{cmd: &exec.Cmd{Process: &os.Process{Pid: math.MaxInt32}}, gone: make(chan struct{}), doomed: true}
		m.child = stuck
		want := "GPU meter, pid 2147483647, cannot be killed: the NVIDIA driver hangs; hint: "
		for range tolerated {
			m.fails(t, t.Context(), want)
		}
		m.fails(t, t.Context(), "GPUs are not read for another 1m0s, after 5 failures in a row: "+want)
		if err := m.Close(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("closed: got %v, want %q", err, want)
		}
		if took := time.Since(begin); m.child != stuck || took != (tolerated+1)*farewell {
			t.Errorf("it took %v, want %v; the child is %+v", took, (tolerated+1)*farewell, m.child)
		}
	})
}

func TestMeterEndsWithItsCaller(t *testing.T) {
	w := wedged(t, "hang in use")
	m := meter(t)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := m.Read(ctx)
		result <- err
	}()
	w.held()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) || m.rest.failures != 0 {
		t.Errorf("got %v, want %v, which is no failure of the driver: %+v", err, context.Canceled, m.rest)
	}
	w.released()
}

func TestMeterReportsFaults(t *testing.T) {
	for fault, want := range map[string]string{
		"crash":    "GPU meter died: exit status 2: SIGSEGV: segmentation violation",
		"flood":    "GPU meter given up: it printed more than 1 MiB",
		"garbage":  "GPU meter ",
		"mismatch": "NVIDIA driver: start NVML: Driver/library version mismatch (NVML error 18); hint: the driver was upgraded",
	} {
		install(t, fault)
		m := meter(t)
		m.fails(t, t.Context(), want)
		t.Setenv("FAKE_NVML", "")
		m.works(t, 1)
	}
}

// A lost GPU does not affect the readings of the other GPUs.
func TestMeterLeavesOutLostGPUs(t *testing.T) {
	install(t, "lost")
	got, err := meter(t).Read(t.Context())
	if all := fakeReadings(1); err != nil || fmt.Sprint(got) != fmt.Sprint(append(all[:1], all[2:]...)) {
		t.Errorf("got %+v (%v)", got, err)
	}
}

func TestMeterLeavesAFailingDriverAlone(t *testing.T) {
	install(t, "mismatch")
	m := meter(t)
	now := time.Now()
	m.now = func() time.Time { return now }
	for range 5 {
		m.fails(t, t.Context(), "NVIDIA driver: start NVML: Driver/library version mismatch")
	}
	last := m.child
	t.Setenv("FAKE_NVML", "")
	now = now.Add(time.Minute - 1)
	m.fails(t, t.Context(), "GPUs are not read for another 0s, after 5 failures in a row: NVIDIA driver: start NVML: ")
	if m.child != last || !last.doomed {
		t.Error("it started another process, or kept the last one")
	}
	now = now.Add(1)
	m.works(t, 1)
}

func TestMeterWithoutDriver(t *testing.T) {
	usual := traces
	defer func() { traces = usual }()
	traces = nil
	for fault, library := range map[string]bool{"": false, "not loaded": true, "empty": true, "forbidden": true} {
		install(t, fault)
		path := os.Getenv("LD_LIBRARY_PATH")
		if !library {
			t.Setenv("LD_LIBRARY_PATH", "")
		}
		m := meter(t)
		now := time.Now()
		m.now = func() time.Time { return now }
		none := func() {
			t.Helper()
			if got, err := m.Read(t.Context()); err != nil || len(got) != 0 {
				t.Fatalf("%q: got %v (%v), want nothing", fault, got, err)
			}
		}
		none()
		if (m.child != nil) != library || library && !m.child.doomed {
			t.Errorf("%q: a process runs, or ran without need", fault)
		}
		install(t, "")
		t.Setenv("LD_LIBRARY_PATH", path)
		now = now.Add(time.Minute - 1)
		none()
		now = now.Add(1)
		m.works(t, 1)
	}
}

func TestMeterClose(t *testing.T) {
	install(t, "")
	m := NewMeter()
	m.works(t, 1)
	pid := m.child.cmd.Process.Pid
	if err := m.Close(); err != nil || alive(pid) {
		t.Errorf("%v, and the process lives %v", err, alive(pid))
	}
	m.fails(t, t.Context(), "the GPU meter is closed")
	if err := m.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	if err := NewMeter().Close(); err != nil {
		t.Errorf("never used: %v", err)
	}
}

// Close ends a Read that waits for a driver, and the Reads that wait for that Read.
func TestMeterCloseEndsReads(t *testing.T) {
	for _, fault := range []string{"hang", "hang in use"} {
		w := wedged(t, fault)
		m := NewMeter()
		results := make(chan error, 3)
		for range cap(results) {
			go func() {
				_, err := m.Read(t.Context())
				results <- err
			}()
		}
		w.held()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		for range cap(results) {
			if err := <-results; err != errClosed {
				t.Errorf("%s: got %v, want %v", fault, err, errClosed)
			}
		}
		w.released()
	}
}

// used is the CPU time of this process and of its children that are gone.
func used(b *testing.B) (sum time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}

// BenchmarkMeter compares a Read with a Survey, in time and in CPU time of parent and child
// together. The CPU time includes the child's start.
func BenchmarkMeter(b *testing.B) {
	install(b, "")
	b.Run("Read", func(b *testing.B) {
		before, m := used(b), NewMeter()
		for b.Loop() {
			if got, err := m.Read(b.Context()); err != nil || len(got) != len(fake) {
				b.Fatal(got, err)
			}
		}
		b.StopTimer()
		if err := m.Close(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(used(b)-before)/float64(b.N), "cpu-ns/op")
	})
	b.Run("Survey", func(b *testing.B) {
		before := used(b)
		for b.Loop() {
			if got, _, err := Survey(b.Context()); err != nil || len(got) != len(fake) {
				b.Fatal(got, err)
			}
		}
		b.ReportMetric(float64(used(b)-before)/float64(b.N), "cpu-ns/op")
	})
}
