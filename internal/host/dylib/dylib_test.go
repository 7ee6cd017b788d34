package dylib

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// TestStatic: with the tag static golaunch needs no loader. Without the tag it needs libc's loader.
func TestStatic(t *testing.T) {
	suite.LeftToAll(t, "it compiles everything without cgo")
	for tags, loader := range map[string]bool{"grpcnotrace,static": false, "grpcnotrace": true} {
		name := filepath.Join(t.TempDir(), "golaunch")
		cmd := exec.Command("go", "build", "-tags", tags, "-o", name, "../../../cmd/golaunch")
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		f, err := elf.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		asks := false
		for _, p := range f.Progs {
			asks = asks || p.Type == elf.PT_INTERP
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if asks != loader {
			t.Errorf("built with the tags %q it wants a loader: %v", tags, asks)
		}
	}
}
