package logs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/testkit/pipetest"
)

// helper, in the environment, makes the test program carry the output of a rank.
const helper = "LOGS_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helper) == carrier {
		resume()
	}
	os.Exit(m.Run())
}

// patient makes a console lose no line for a minute on a busy machine.
func patient(c *console.Console) *console.Console {
	c.SetPatience(time.Minute)
	return c
}

// OpenDir and FindDir have the rights of this process.
func OpenDir(base, job string) (*Dir, error) { return Access{}.OpenDir(base, job) }
func FindDir(base, job string) (*Dir, error) { return Access{}.FindDir(base, job) }

func openDir(t *testing.T, base string) *Dir {
	t.Helper()
	d, err := OpenDir(base, "job1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func newRank(t *testing.T, d *Dir, opts RankOptions) *Rank {
	t.Helper()
	opts.Node = "n1"
	if opts.Warn == nil {
		opts.Warn = func(err error) { t.Error(err) }
	}
	r, err := d.Rank(opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// start runs a shell script as the rank, and kills it at the end of the test if it still runs.
func start(t *testing.T, r *Rank, script string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(pipetest.Soon(t), "sh", append([]string{"-c", script, "sh"}, args...)...)
	cmd.Stdout, cmd.Stderr = r.Stdout, r.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Started()
	return cmd
}

// run runs a shell script as the rank to its end and closes the rank.
func run(t *testing.T, r *Rank, script string, args ...string) {
	t.Helper()
	if err := start(t, r, script, args...).Wait(); err != nil {
		t.Errorf("%s: %v", script, err)
	}
	if err := r.Close(pipetest.Soon(t)); err != nil {
		t.Error(err)
	}
}

func readFile(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
