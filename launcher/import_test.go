package launcher_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// mainVar, in the environment, makes the test binary print the name and the arguments with which it
// was started. The binary then stands for a program that imports package launcher.
const mainVar = "LAUNCHER_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVar) != "" {
		fmt.Printf("main %q", os.Args)
		os.Exit(0)
	}
	suite.Main(m)
}

// TestImportingChangesNothing starts a program that imports package launcher under the names, and
// with the arguments, of golaunch's own processes.
func TestImportingChangesNothing(t *testing.T) {
	t.Setenv(mainVar, "1")
	for _, argv := range [][]string{
		{"golaunch-node"},
		{"rankguard"},
		{"rankkeeper"},
		{"gpuprobe", "1s"},
		{"golaunch-allreduce", "{}"},
		{"program", "_node"},
		{"golaunch", "_node"},
		{"program", "_fabric", "{}"},
		{"program", "--golaunch-remote-node"},
	} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Args = argv
		cmd.Stdin = strings.NewReader("{}")
		out, err := cmd.CombinedOutput()
		if want := fmt.Sprintf("main %q", argv); err != nil || string(out) != want {
			t.Errorf("%q: it printed %q (%v), want %q", argv, out, err, want)
		}
	}
}
