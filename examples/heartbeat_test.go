package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// TestHeartbeatThatCannotBeWritten: beat raises no exception if the file cannot be made, or if a
// write to the file fails.
func TestHeartbeatThatCannotBeWritten(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		suite.Missing(t, "there is no python3 here")
	}
	const twice = "import golaunch_heartbeat\nfor step in range(2):\n    golaunch_heartbeat.beat(step, 2, 'words')\nprint('trained')"
	for _, file := range []string{filepath.Join(t.TempDir(), "none", "beat"), "/dev/full"} {
		cmd := exec.Command(python, "-c", twice)
		cmd.Env = append(os.Environ(), "GOLAUNCH_HEARTBEAT_FILE="+file, "PYTHONDONTWRITEBYTECODE=1")
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "trained\n" {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}
