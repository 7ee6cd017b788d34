package gpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestMPS(t *testing.T) {
	dir := t.TempDir()
	if MPS(dir) {
		t.Error("a daemon is found in an empty directory")
	}
	if err := os.WriteFile(filepath.Join(dir, "nvidia-cuda-mps-control.pid"), []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if !MPS(dir) {
		t.Error("the daemon's file is not found")
	}
}

// TestMPSServer has a process by the server's name.
func TestMPSServer(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	server := filepath.Join(t.TempDir(), "nvidia-cuda-mps-server")
	if err := os.WriteFile(server, program, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), server, "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if !mpsServer(cmd.Process.Pid) || mpsServer(os.Getpid()) || mpsServer(1<<30) {
		t.Errorf("pid %d is the server: %v, this test: %v", cmd.Process.Pid, mpsServer(cmd.Process.Pid), mpsServer(os.Getpid()))
	}
}
