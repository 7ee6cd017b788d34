package gpu

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/placement"
)

// generous bounds waits that only a defect makes long.
const generous = time.Minute

// fake has the devices of testdata/nvml.c, in PCI bus order.
var fake = []Device{
	{
		Index: 0, UUID: "GPU-0f000000-0000", Name: "NVIDIA H200", PCI: "0000:0f:00.0", Memory: 150754820096, Holders: []int{4411}, Health: sick,
		Power: Power{Energy: 8000, Limit: 700001},
	},
	{
		Index: 1, UUID: "GPU-8f000000-0000", Name: "NVIDIA H200", PCI: "0000:8f:00.0", Memory: 150754820096, Holders: hundred(), Health: well,
		Power: Power{Energy: 10000},
	},
	{Index: 2, UUID: "MIG-aa000000-0000", Name: "NVIDIA A100-SXM4-40GB MIG 1g.5gb", PCI: "10000:01:00.0", MIG: true},
	{
		Index: 3, UUID: "MIG-bb000000-0000", Name: "NVIDIA A100-SXM4-40GB MIG 2g.10gb", PCI: "10000:01:00.0", MIG: true,
		Memory: 10468982784, Holders: []int{77},
	},
}

// sick is a GPU with all possible problems, and well one without any.
var (
	sick = Health{
		Uncorrected: 1 << 32, RemapPending: true, RemapFailed: true, Recovery: "node reboot", Links: 18, DownLinks: []int{17},
		Throttled: []string{"hardware thermal slowdown"}, Lanes: 8, MaxLanes: 16, Fabric: "in progress",
	}
	well = Health{Lanes: 16, MaxLanes: 16, Links: 18}
)

func hundred() (pids []int) {
	for i := range 100 {
		pids = append(pids, 5000+i)
	}
	return pids
}

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(driverDir)
	os.Exit(code)
}

var driverDir string

// compileDriver builds the fake driver's library, and returns its folder.
var compileDriver = sync.OnceValues(func() (dir string, err error) {
	if driverDir, err = os.MkdirTemp("", "golaunch-nvml"); err != nil {
		return "", err
	}
	return driverDir, compileInto(driverDir)
})

// compileInto builds against the real nvml.h.
func compileInto(dir string, flags ...string) error {
	header, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}/pkg/nvml", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		return err
	}
	cc := exec.Command("cc", append(flags, "-shared", "-fPIC", "-w", "-DNVML_NO_UNVERSIONED_FUNC_DEFS",
		"-I", strings.TrimSpace(string(header)), "-o", filepath.Join(dir, "libnvidia-ml.so.1"), "testdata/nvml.c")...)
	cc.Stderr = os.Stderr
	return cc.Run()
}

// install puts the fake driver, with a fault, where the children of this test find it. The GPUs are
// unrestricted.
func install(t testing.TB, fault string) {
	t.Helper()
	dir, err := compileDriver()
	if err != nil {
		t.Fatalf("build the fake driver: %v", err)
	}
	t.Setenv("LD_LIBRARY_PATH", dir)
	t.Setenv("FAKE_NVML", fault)
	t.Setenv("CUDA_VISIBLE_DEVICES", "")
	os.Unsetenv("CUDA_VISIBLE_DEVICES")
}

func TestList(t *testing.T) {
	install(t, "")
	got, why, err := List(t.Context())
	if err != nil || why != "" || !reflect.DeepEqual(got, fake) {
		t.Errorf("got %v %q %v, want %v", got, why, err, fake)
	}
	t.Setenv("CUDA_VISIBLE_DEVICES", "MIG-bb,0,9,1")
	got, why, err = List(t.Context())
	if err != nil || why != "" || !reflect.DeepEqual(got, []Device{fake[3], fake[0]}) {
		t.Errorf("got %v %q %v, want devices 3 and 0", got, why, err)
	}
}

func TestListSaysWhyThereAreNoGPUs(t *testing.T) {
	for fault, want := range map[string]string{
		"not loaded": "no NVIDIA driver: libnvidia-ml.so.1 is there, the kernel module is not loaded",
		"empty":      "the NVIDIA driver finds no GPU",
		"forbidden":  "no permission for any of the 3 GPUs",
	} {
		install(t, fault)
		if got, why, err := List(t.Context()); err != nil || len(got) != 0 || why != want {
			t.Errorf("%s: got %v %q %v, want %q", fault, got, why, err, want)
		}
	}
	install(t, "")
	t.Setenv("CUDA_VISIBLE_DEVICES", "NoDevFiles")
	want := `CUDA_VISIBLE_DEVICES="NoDevFiles" hides all 4 GPUs`
	if got, why, err := List(t.Context()); err != nil || len(got) != 0 || why != want {
		t.Errorf("got %v %q %v, want %q", got, why, err, want)
	}
}

func TestListReportsFaults(t *testing.T) {
	for fault, want := range map[string]string{
		"crash":    "GPU probe died: exit status 2: SIGSEGV: segmentation violation",
		"flood":    "GPU probe given up: it printed more than 1 MiB",
		"garbage":  `GPU probe printed "no protocol specified\n" instead of its report`,
		"mismatch": "NVIDIA driver: start NVML: Driver/library version mismatch (NVML error 18); hint: the driver was upgraded",
		"lost":     "NVIDIA driver: GPU index 1 of 3: Fault (NVML error 15); hint: take the node out",
	} {
		install(t, fault)
		ctx, cancel := context.WithTimeout(t.Context(), generous)
		got, why, err := List(ctx)
		if err == nil || !strings.HasPrefix(err.Error(), want) || len(got) != 0 || why != "" {
			t.Errorf("%s: got %v %q %v, want %q", fault, got, why, err, want)
		}
		if lost := errors.Is(err, ErrLost); lost != (fault == "lost") {
			t.Errorf("%s: that a GPU is lost is %v", fault, lost)
		}
		cancel()
	}
}

func TestListKillsAWedgedProbe(t *testing.T) {
	w := wedged(t, "hang")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, _, err := List(ctx)
	if err == nil || !strings.HasPrefix(err.Error(), "the NVIDIA driver did not answer within ") {
		t.Errorf("got %v, want the deadline", err)
	}
	w.held()
	w.released()
}

func TestListEndsWithItsCaller(t *testing.T) {
	w := wedged(t, "hang")
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, _, err := List(ctx)
		result <- err
	}()
	w.held()
	cancel()
	if err := <-result; err == nil || err.Error() != "GPU probe given up: context canceled" {
		t.Errorf("got %v, want context canceled", err)
	}
	w.released()
}

// A driver may start a daemon, which keeps the probe's standard output open.
func TestListWaitsForNoDaemon(t *testing.T) {
	w := wedged(t, "daemon")
	got, why, err := List(t.Context())
	if err != nil || why != "" || !reflect.DeepEqual(got, fake) {
		t.Errorf("got %v %q %v, want %v", got, why, err, fake)
	}
	w.held()
}

// wedge is a driver that hangs: two processes hold its fifo open, the probe and a helper.
type wedge struct {
	t      *testing.T
	reader *os.File
	writer *os.File
}

func wedged(t *testing.T, fault string) wedge {
	t.Helper()
	install(t, fault)
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAKE_NVML_FIFO", path)
	reader, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close(); writer.Close() })
	if err := reader.SetReadDeadline(time.Now().Add(generous)); err != nil {
		t.Fatal(err)
	}
	return wedge{t, reader, writer}
}

// held waits until both processes hang.
func (w wedge) held() {
	w.t.Helper()
	if _, err := io.ReadFull(w.reader, make([]byte, 2)); err != nil {
		w.t.Fatalf("wait for the driver to hang: %v", err)
	}
}

// released waits until both processes are gone.
func (w wedge) released() {
	w.t.Helper()
	w.writer.Close()
	if _, err := io.ReadAll(w.reader); err != nil {
		w.t.Fatalf("the hanging processes live on: %v", err)
	}
}

func TestAwaitLeavesAnUnkillableProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		begin := time.Now()
		dead, err := await(ctx, make(chan error))
		if took := time.Since(begin); dead || err != nil || took != patience+farewell {
			t.Errorf("got dead %v, error %v after %v, want it left alone after %v", dead, err, took, patience+farewell)
		}
		want := "the NVIDIA driver did not answer within 10s, and its probe, pid 7, cannot be killed; hint: "
		if err := givenUp(ctx, patience, dead, 7); !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %q, want %q", err, want)
		}
	})
}

func TestPlacement(t *testing.T) {
	want := []placement.GPU{
		{Index: 0, UUID: "GPU-0f000000-0000", PCI: "0000:0f:00.0", Memory: 150754820096, HeldBy: "pid 4411"},
		{Index: 1, UUID: "GPU-8f000000-0000", PCI: "0000:8f:00.0", Memory: 150754820096, HeldBy: "pid 5000 and 99 more"},
		{Index: 2, UUID: "MIG-aa000000-0000", PCI: "10000:01:00.0"},
		{Index: 3, UUID: "MIG-bb000000-0000", PCI: "10000:01:00.0", Memory: 10468982784, HeldBy: "pid 77"},
	}
	if got := Placement(fake); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPresent(t *testing.T) {
	install(t, "")
	usual := traces
	defer func() { traces = usual }()
	traces = nil
	library := os.Getenv("LD_LIBRARY_PATH")
	if present("") || present(t.TempDir()) || !present(t.TempDir()+":"+library) {
		t.Error("a library is present just when LD_LIBRARY_PATH has it")
	}
	traces = []string{filepath.Join(library, "none"), library}
	if !present("") {
		t.Error("a trace of a driver is overlooked")
	}
	traces = nil
	t.Setenv("LD_LIBRARY_PATH", "")
	if got, why, err := List(t.Context()); err != nil || len(got) != 0 || why != noLibrary {
		t.Errorf("got %v %q %v, want %q", got, why, err, noLibrary)
	}
}

func BenchmarkList(b *testing.B) {
	b.Run("driver", func(b *testing.B) {
		install(b, "")
		for b.Loop() {
			if got, _, err := List(b.Context()); err != nil || len(got) != len(fake) {
				b.Fatal(got, err)
			}
		}
	})
	b.Run("none", func(b *testing.B) {
		b.Setenv("LD_LIBRARY_PATH", "")
		for b.Loop() {
			present("")
		}
	})
}
