package slurmtest

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLeavesNothing runs a test, in a process of its own, that ends in the middle of its work.
func TestLeavesNothing(t *testing.T) {
	const play = "SLURMTEST_PLAY"
	plays := map[string]struct {
		run  func(*testing.T)
		want string
	}{
		"busy":   {busy, "PASS"},
		"fails":  {func(t *testing.T) { busy(t); t.Fatal("the test fails") }, "slurmd started"},
		"panics": {func(t *testing.T) { busy(t); panic("the test panics") }, "the test panics"},
		"no start": {func(t *testing.T) {
			Start(t, Options{Config: map[string]string{"SelectType": "select/typo"}})
		}, "waited for slurmctld to answer, but slurmctld on head ended: exit status 1"},
	}
	if name := os.Getenv(play); name != "" {
		plays[name].run(t)
		return
	}
	for name, p := range plays {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestLeavesNothing$", "-test.v")
			cmd.Env = append(os.Environ(), play+"="+name)
			out, err := cmd.CombinedOutput()
			if failed := err != nil; failed != (name != "busy") || !strings.Contains(string(out), p.want) {
				t.Errorf("%v, and the output should have %q:\n%s", err, p.want, out)
			}
			if left := leftovers(t, cmd.Process.Pid); len(left) > 0 {
				t.Errorf("it left\n%s", strings.Join(left, "\n"))
			}
		})
	}
}

// busy returns while a task runs that has a child in a session of its own.
func busy(t *testing.T) {
	c := Start(t, Options{})
	cmd := c.Command("srun", "sh", "-c", "setsid sleep 1000 & echo up; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
		t.Fatalf("the task says %q: %v", line, err)
	}
	left := strings.Join(leftovers(t, os.Getpid()), "\n")
	if !strings.Contains(left, "sleep 1000") || !strings.Contains(left, "/run/netns/") {
		t.Errorf("of a running cluster there is only\n%s", left)
	}
}

// leftovers returns the files, processes, network namespaces, interfaces and cgroups of the
// clusters that the process pid made.
func leftovers(t *testing.T, pid int) []string {
	t.Helper()
	dir := fmt.Sprintf("/tmp/slurm%d-", pid)
	found := []string{}
	name := fmt.Sprintf("gl%dx*", pid%100000)
	for _, pattern := range []string{dir + "*", "/run/netns/" + name, "/sys/class/net/" + name} {
		files, _ := filepath.Glob(pattern)
		found = append(found, files...)
	}
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range environs {
		env, _ := os.ReadFile(file) // a process may end while it is looked at
		if strings.Contains(string(env), "SLURM_CONF="+dir) {
			argv, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
			found = append(found, filepath.Dir(file)+" "+strings.ReplaceAll(string(argv), "\x00", " "))
		}
	}
	for _, cgroup := range cgroups() {
		if !slices.Contains(others, cgroup) {
			found = append(found, cgroup)
		}
	}
	return found
}

// others returns the cgroups of the machine's own Slurm.
var others = cgroups()

// cgroups returns the cgroups with Slurm's name in their names.
func cgroups() (found []string) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(d.Name(), "slurm") {
			found = append(found, path)
		}
		return nil // a cgroup may end while it is looked at
	})
	return found
}
