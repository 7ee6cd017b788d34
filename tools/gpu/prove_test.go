// Package gpu tests prove.py, which tests golaunch on a GPU.
package gpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// TestProve: the checks that can run on this machine pass. For the others the report says why they
// could not run. Golaunch without cgo is tested only for [suite.All].
func TestProve(t *testing.T) {
	dir := t.TempDir()
	builds := map[string]string{"golaunch": "1"}
	if suite.All() {
		builds = map[string]string{"golaunch": "0", "golaunch-cgo": "1"}
	} else if err := os.Symlink("golaunch", filepath.Join(dir, "golaunch-cgo")); err != nil {
		t.Fatal(err)
	}
	for name, cgo := range builds {
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
