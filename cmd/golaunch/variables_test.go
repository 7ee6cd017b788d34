package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

// TestVariables checks that golaunch in a rank does not take the rank's variables for flags, that
// destructive flags have no variable, and that a variable has one meaning.
func TestVariables(t *testing.T) {
	t.Parallel()
	gpu := placement.GPU{UUID: "GPU-1"}
	told := map[string]bool{}
	for _, v := range rankenv.Vars(rankenv.Facts{
		GPUs: []placement.GPU{gpu}, GPU: &gpu, NoticeFile: "f", HeartbeatFile: "f", CPUs: "0", NodeName: "n", JobID: "j",
	}) {
		told[v.Name] = true
	}
	types := map[string]string{}
	for _, v := range newRoot(&cli.Console{}).Commands() {
		v.Flags().VisitAll(func(flag *pflag.Flag) {
			for _, name := range cli.Variables(v.Name(), flag.Name) {
				if told[name] {
					t.Errorf("%s is set for ranks, and read for --%s of %s", name, flag.Name, v.Name())
				}
				if slices.Contains([]string{"all", "kill", "drain", "within", "yes", "give-back"}, flag.Name) && slices.Contains([]string{"stop", "agent", "swap", "up", "down", "coordinator"}, v.Name()) {
					t.Errorf("%s %s --%s has a variable, %s", v.Name(), flag.Name, flag.Name, name)
				}
				if kind := types[name]; kind != "" && kind != flag.Value.Type() {
					t.Errorf("%s is a %s for %s, and a %s elsewhere", name, flag.Value.Type(), v.Name(), kind)
				}
				types[name] = flag.Value.Type()
			}
		})
	}
}

// TestAJobInARank: a job in a rank takes nothing away from the rank's own job.
func TestAJobInARank(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	inner := golaunch(t) + " --procs-per-node 1 -- sh -c 'echo inner'"
	p := start(t, exec.Command(golaunch(t), "--procs-per-node", "1", "--max-restarts", "0", "--env", "GOLAUNCH_JOB_ID=outer", "--job-id", "outer",
		"--", "sh", "-c", "echo before; "+inner+"; echo after; exit 3"), "HOME="+home, "TMPDIR="+home, "GOLAUNCH_ALL=1")
	p.ends(3, "inner", "after")
	dir := filepath.Join(home, fmt.Sprintf("golaunch-%d", os.Getuid()), "outer")
	if text, err := os.ReadFile(filepath.Join(dir, "attempt-0", "rank-0.stdout.log")); err != nil || !strings.HasSuffix(string(text), "inner\nafter\n") {
		t.Errorf("%s: %q, %v", dir, text, err)
	}
}
