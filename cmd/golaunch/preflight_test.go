package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/diagnosis"
)

// driver is the directory with the fake driver of internal/host/gpu. Its GPU 0 has every possible
// fault, and its GPU 2 has no fault.
var driver = sync.OnceValues(func() (dir string, err error) {
	header, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}/pkg/nvml", "github.com/NVIDIA/go-nvml").Output()
	if err == nil {
		dir, err = os.MkdirTemp("", "driver") // it is removed with the TMPDIR of all these tests
	}
	if err != nil {
		return "", err
	}
	out, err := exec.Command("cc", "-shared", "-fPIC", "-w", "-DNVML_NO_UNVERSIONED_FUNC_DEFS", "-I", strings.TrimSpace(string(header)),
		"-o", filepath.Join(dir, "libnvidia-ml.so.1"), "../../internal/host/gpu/testdata/nvml.c").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return dir, err
})

// fakeDriver returns the environment in which a process finds a selection of the fake driver's
// GPUs.
func fakeDriver(t *testing.T) (with func(indexes string) []string) {
	t.Helper()
	dir, err := driver()
	if err != nil {
		t.Fatal("build the fake driver: ", err)
	}
	return func(indexes string) []string {
		return []string{"LD_LIBRARY_PATH=" + dir, "CUDA_VISIBLE_DEVICES=" + indexes, "FAKE_NVML="}
	}
}

const (
	ill     = "0,2" // a process has the first GPU, so ranks run on the other
	healthy = "2"
)

// TestChosenGPUs: the GPUs are those of --gpus, in that order, and no others.
func TestChosenGPUs(t *testing.T) {
	with := fakeDriver(t)
	show := []string{"--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE on $CUDA_VISIBLE_DEVICES"}
	run := func(code int, want string, args ...string) {
		t.Helper()
		start(t, exec.Command(golaunch(t), append(append([]string{"--preflight", "off"}, args...), show...)...), with("0,2")...).ends(code, want)
	}
	run(0, "rank 0 of 1 on MIG-aa000000-0000", "--gpus", "2")
	run(0, "rank 1 of 2 on MIG-aa000000-0000", "--gpus", "2", "--gpus-per-rank", "0.5")
	run(2, `GPU "7" is none of the 2 here`, "--gpus", "2,7")
	run(2, `GPU "2" is chosen twice`, "--gpus", "2,2")
	run(2, "gpu ids are for ranks with a GPU each", "--gpus", "2", "--procs-per-node", "1")
}

// TestNoCgroupIsReported runs where golaunch cannot make cgroups: doctor says so, and a job on one
// machine.
func TestNoCgroupIsReported(t *testing.T) {
	for _, args := range [][]string{{"doctor"}, {"--", "true"}} {
		cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-c", `umount -l -a -t cgroup2 && exec "$@"`, "-", golaunch(t)}, args...)...)
		code, text := start(t, cmd).wait()
		if code != 0 || strings.Count(text, "may outlive a golaunch that is killed") == 0 || strings.Count(text, "[no-cgroup]") != 1 {
			t.Errorf("%q: exit code %d:\n%s", args, code, text)
		}
	}
}

func TestDoctorFindsErrors(t *testing.T) {
	t.Parallel()
	with := fakeDriver(t)
	for _, test := range []struct {
		gpu, fault string
		code       int
		want       string
	}{
		{healthy, "", 0, ""},
		{ill, "", exitIll, "gpu-recovery gpu-ecc gpu-row-remap fabric-manager gpu-row-pending gpu-throttled gpu-pcie-width nvlink-down"},
		{"7", "", 0, "cuda-visible-devices"},
		{healthy, "lost", exitIll, "gpu-lost"},
		{healthy, "mismatch", exitIll, "gpu-driver"},
		{healthy, "crash", exitIll, "gpu-driver"},
		{healthy, "not loaded", 0, ""},
	} {
		p := start(t, exec.Command(golaunch(t), "doctor", "--json"), append(with(test.gpu), "FAKE_NVML="+test.fault)...)
		code, text := p.wait()
		var d diagnosis.Machine
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var codes []string
		for _, f := range d.Findings {
			if strings.HasPrefix(f.Text, "GPU ") || strings.Contains(f.Code, "gpu") || f.Code == "cuda-visible-devices" {
				codes = append(codes, f.Code)
			}
		}
		if got := strings.Join(codes, " "); code != test.code || got != test.want {
			t.Errorf("GPU %s, %q: exit code %d with %s, want %d with %s", test.gpu, test.fault, code, got, test.code, test.want)
		}
	}
}

func TestPreflightAlone(t *testing.T) {
	t.Parallel()
	with := fakeDriver(t)
	for policy, want := range map[string]struct {
		code int
		text string
	}{
		"off":     {0, "job succeeded"},
		"warn":    {0, "[gpu-ecc]"},
		"exclude": {125, "unfit: gpu-recovery, gpu-ecc, gpu-row-remap, fabric-manager"},
		"fail":    {125, "[gpu-ecc]"},
	} {
		p := start(t, exec.Command(golaunch(t), "--preflight", policy, "-g", "1", "--", "true"), with(ill)...)
		code, text := p.wait()
		if code != want.code || !strings.Contains(text, want.text) || strings.Contains(text, "warning: ") != (policy != "off") {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s", policy, code, want.code, want.text, text)
		}
	}
}

// A node with an error gets no rank, and the spare gets ranks instead.
func TestPreflightExcludesANode(t *testing.T) {
	t.Parallel()
	with := fakeDriver(t)
	nodes, token := cluster(t)
	job := []string{"--preflight", "exclude", "--nodes", "1", "--gpus-per-node", "1", "--spares", "1", "--", "sh", "-c", "echo rank 0 on $GOLAUNCH_NODE"}
	first := start(t, join(t, nodes[0], "bad", token, job...), with(ill)...)
	first.line("warning: bad: GPU 0 .0000:0f:00.0. has had ")
	second := start(t, join(t, nodes[1], "good", token, job...), with(healthy)...)
	code, text := first.wait()
	if code != 0 || strings.Contains(text, "rank 0 on") {
		t.Errorf("exit code %d, want 0 and no rank:\n%s", code, text)
	}
	if code, text := second.wait(); code != 0 || !strings.Contains(text, "rank 0 on good") {
		t.Errorf("exit code %d, want 0 and the rank:\n%s", code, text)
	}
}

// A node with an error ends the job on all nodes.
func TestPreflightFailsAJob(t *testing.T) {
	t.Parallel()
	with := fakeDriver(t)
	nodes, token := cluster(t)
	job := []string{"--preflight", "fail", "--nodes", "2", "--gpus-per-node", "1", "--", "sleep", "1000"}
	first := start(t, join(t, nodes[0], "good", token, job...), with(healthy)...)
	first.line("waiting for 1 of 2 nodes")
	second := start(t, join(t, nodes[1], "bad", token, job...), with(ill)...)
	for _, p := range []*process{first, second} {
		if code, text := p.wait(); code != 125 || !strings.Contains(text, "job failed: bad: GPU 0 (0000:0f:00.0) has had ") {
			t.Errorf("exit code %d, want 125 and the reason:\n%s", code, text)
		}
	}
}

// If two nodes have different environments, the leader prints one warning.
func TestSkewOfTwoNodes(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	job := []string{"--nodes", "2", "--procs-per-node", "1", "--", "true"}
	first := start(t, join(t, nodes[0], "n1", token, job...), "VIRTUAL_ENV=/opt/a")
	second := start(t, join(t, nodes[1], "n2", token, job...), "VIRTUAL_ENV=/opt/b")
	for _, p := range []*process{first, second} {
		code, text := p.wait()
		warned := strings.Count(text, "[python-skew]")
		if code != 0 || (warned == 1) != (p == first) || p == first && (!strings.Contains(text, "VIRTUAL_ENV=/opt/a; n2 ") || warned != 1) {
			t.Errorf("exit code %d with %d warnings:\n%s", code, warned, text)
		}
	}
}

// A node with an error joins its cluster but gets no ranks, or does not join. All users can see
// why.
func TestPreflightOfAnAgent(t *testing.T) {
	t.Parallel()
	with := fakeDriver(t)
	code, text := start(t, exec.Command(golaunch(t), "agent", "--coordinator", "127.0.0.1:1", "--preflight", "fail"), with(ill)...).wait()
	if code != 125 || !strings.Contains(text, "wants this: node reboot; ") || !strings.Contains(text, "[gpu-recovery]") {
		t.Errorf("exit code %d:\n%s", code, text)
	}

	h := newCluster(t)
	h.coordinate()
	cmd := h.nodes[1].Command(golaunch(t), "agent", "--coordinator", h.at, "--name", "bad", "--preflight", "exclude")
	agent := start(t, cmd, append(with(ill), "HOME="+h.home, "GOLAUNCH_COORDINATOR=")...)
	agent.line("bad .* is in the cluster of ")
	if text, _ := agent.out.read(); !strings.Contains(text, "[gpu-ecc]") {
		t.Errorf("the agent does not say what is wrong:\n%s", text)
	}
	if text := h.do("status", "--json"); !strings.Contains(text, `"unfit": "gpu-recovery, gpu-ecc, gpu-row-remap, fabric-manager"`) {
		t.Errorf("the status does not say why the node is unfit:\n%s", text)
	}
	code, text = h.start(0, "--gpus-per-node", "1", "--placement-timeout", "1s", "--", "true").wait()
	if code != 124 || !strings.Contains(text, "bad: unfit: gpu-recovery") {
		t.Errorf("a job on it: exit code %d, want 124:\n%s", code, text)
	}
}
