package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// holdGPU lets a process hold GPU 0 of the fake driver, until free is called or the test ends. held
// is the environment in which a process sees this.
func holdGPU(t *testing.T) (held []string, pid int, free func()) {
	t.Helper()
	with := fakeDriver(t)
	holder := exec.Command("sleep", "1000")
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "GPU-0f000000-0000", fmt.Sprint(holder.Process.Pid))
	free = sync.OnceFunc(func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
		if err := os.Remove(file); err != nil { // the driver still names the process for a while
			t.Error(err)
		}
	})
	t.Cleanup(free)
	err := os.Mkdir(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte("1000000000"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return append(with("0"), "FAKE_NVML_HELD="+dir), holder.Process.Pid, free
}

// A job whose GPU another process holds starts when that process has ended.
func TestAHeldGPUIsFreed(t *testing.T) {
	t.Parallel()
	held, pid, free := holdGPU(t)
	p := start(t, exec.Command(golaunch(t), "--preflight", "off", "-g", "1", "--", "echo", "it runs"), held...)
	p.line(fmt.Sprintf("cannot place the job yet: .* gpu0 held by pid %d", pid))
	free()
	p.ends(0, "it runs")
}

func TestAHeldGPUIsNotFreed(t *testing.T) {
	t.Parallel()
	held, pid, _ := holdGPU(t)
	p := start(t, exec.Command(golaunch(t), "--preflight", "off", "--placement-timeout", "1s", "-g", "1", "--", "echo", "it runs"), held...)
	p.ends(124, fmt.Sprintf("gpu0 held by pid %d", pid))
}

// The GPU of a cluster's node goes to the job that waits for it.
func TestAHeldGPUOfAnAgentIsFreed(t *testing.T) {
	t.Parallel()
	held, pid, free := holdGPU(t)
	h := newCluster(t)
	h.coordinate()
	cmd := h.nodes[1].Command(golaunch(t), "agent", "--coordinator", h.at, "--name", "busy", "--preflight", "off")
	agent := start(t, cmd, append(held, "HOME="+h.home, "GOLAUNCH_COORDINATOR=")...)
	agent.line("busy .* is in the cluster of ")
	p := h.start(0, "--gpus-per-node", "1", "--", "echo", "it runs")
	p.line(fmt.Sprintf("gpu0 held by pid %d", pid))
	free()
	p.ends(0, "it runs")
}
