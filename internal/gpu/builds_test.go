package gpu

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
)

// build compiles testdata/list with or without cgo.
func build(t *testing.T, cgo string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "list")
	cmd := exec.Command("go", "build", "-o", program, "./testdata/list")
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build with CGO_ENABLED=%s: %v\n%s", cgo, err, out)
	}
	return program
}

func TestBothBuildsList(t *testing.T) {
	install(t, "")
	for cgo, env := range map[string]string{"0": "LD_BIND_NOW=1", "1": "LD_BIND_NOW="} {
		var complaints bytes.Buffer
		cmd := exec.Command(build(t, cgo), generous.String())
		cmd.Env = append(os.Environ(), env)
		cmd.Stderr = &complaints
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("CGO_ENABLED=%s: %v: %s", cgo, err, complaints.Bytes())
		}
		var got []Device
		if err := json.Unmarshal(out, &got); err != nil || !reflect.DeepEqual(got, fake) {
			t.Errorf("CGO_ENABLED=%s: got %s (%v), want %v; %s", cgo, out, err, fake, complaints.Bytes())
		}
	}
}

// A probe ends by itself when the parent, which would have killed it, was killed.
func TestProbeOutlivesNoDeadParent(t *testing.T) {
	w := wedged(t, "hang")
	parent := exec.Command(build(t, "0"), "1s")
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	w.held()
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := parent.Wait(); err == nil {
		t.Error("the parent ended before it was killed")
	}
	w.released()
}
