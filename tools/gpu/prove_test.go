// Package gpu tests prove.py, which tests golaunch on a GPU.
package gpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestProve: the checks that can run on this machine pass. For the others the report says why they
// could not run.
func TestProve(t *testing.T) {
	dir := t.TempDir()
	for name, cgo := range map[string]string{"golaunch": "0", "golaunch-cgo": "1"} {
		cmd := exec.Command("go", "build", "-ldflags=-extldflags=-Wl,-z,lazy", "-o", filepath.Join(dir, name), "../../cmd/golaunch")
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	report := filepath.Join(dir, "gpu.md")
	out, err := exec.CommandContext(t.Context(), "python3", "prove.py", "--golaunch", dir, "--report", report).CombinedOutput()
	if err != nil || strings.Contains(string(out), "failed") || !strings.Contains(string(out), "doctor: passed") {
		t.Errorf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(report)
	if err != nil || strings.Count(string(text), "\n## ") != 13 || !strings.HasPrefix(string(text), "# golaunch on a GPU\n\ngolaunch ") {
		t.Errorf("%v\n%s", err, text)
	}
	if _, err := exec.LookPath("nvidia-smi"); err != nil && strings.Count(string(text), "could not run: ") != 12 {
		t.Errorf("without a GPU it says:\n%s", out)
	}
	if out, err := exec.Command("python3", "prove.py", "nothing").CombinedOutput(); err == nil || !strings.Contains(string(out), "there is no check nothing: gpus, visibility") {
		t.Errorf("%v\n%s", err, out)
	}
}
