package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
)

// torchrunOn returns the command that a node of a job runs.
func torchrunOn(t *testing.T, n nettest.Node, args ...string) *exec.Cmd {
	return n.Command(append([]string{golaunch(t), "torchrun"}, args...)...)
}

// TestTorchrunNodeRanks gives nodes ranks in another order than their addresses. The endpoint is on
// the node with rank 1.
func TestTorchrunNodeRanks(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	var all []*process
	for i, rank := range []string{"1", "0", "2"} {
		all = append(all, start(t, torchrunOn(t, nodes[i], "--nnodes", "3", "--node-rank", rank, "--master-addr", "10.77.0.2",
			"--no-python", "sh", "-c", "echo at "+nodes[i].Addr.String()+": node $GROUP_RANK, master $MASTER_ADDR"),
			"GOLAUNCH_TOKEN_FILE="+token))
	}
	all[0].line(`^at 10\.77\.0\.2: node 1, master 10\.77\.0\.10$`)
	all[1].line(`^at 10\.77\.0\.10: node 0, master 10\.77\.0\.10$`)
	all[2].line(`^at 10\.77\.0\.9: node 2, master 10\.77\.0\.10$`)
	ended(t, all...)
}

// TestTorchrunTorch: real ranks of torch meet.
func TestTorchrunTorch(t *testing.T) {
	t.Parallel()
	needTorch(t, python)
	script, err := filepath.Abs("testdata/allreduce.py")
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, exec.Command(golaunch(t), "torchrun", "--standalone", "--nproc-per-node", "2", script), "PYTHON_EXEC="+python)
	p.line(`^rank 0 of 2: the ranks add up to 3$`)
	p.line(`^rank 1 of 2: the ranks add up to 3$`)
	ended(t, p)
}

// TestTorchrunOfAnEnvironment: a link in a virtual environment, called by its path, runs that
// environment's Python.
func TestTorchrunOfAnEnvironment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := filepath.Join(dir, "venv")
	if out, err := exec.Command(python, "-m", "venv", "--without-pip", env).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	built := filepath.Join(dir, "golaunch")
	if err := os.Link(golaunch(t), built); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(built, filepath.Join(env, "bin", "torchrun")); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "prefix.py")
	if err := os.WriteFile(script, []byte("import sys; print(sys.prefix)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("venv/bin/torchrun", "--standalone", script)
	c.Dir = dir
	start(t, c).ends(0, env+"\n")

	// A link to that link, called by its name in the PATH, runs the same Python.
	bin := filepath.Join(dir, "bin")
	if err := errors.Join(os.Mkdir(bin, 0o700), os.Symlink("../venv/bin/torchrun", filepath.Join(bin, "torchrun"))); err != nil {
		t.Fatal(err)
	}
	start(t, exec.Command("sh", "-c", "exec torchrun --standalone \"$0\"", script), "PATH="+bin+":"+os.Getenv("PATH")).ends(0, env+"\n")

	// A link in a directory with a Python outside any environment runs the Python of the active
	// environment.
	system := filepath.Join(dir, "system", "bin")
	if err := errors.Join(os.MkdirAll(system, 0o700), os.Symlink(built, filepath.Join(system, "torchrun")),
		os.Symlink(python, filepath.Join(system, "python3"))); err != nil {
		t.Fatal(err)
	}
	start(t, exec.Command(filepath.Join(system, "torchrun"), "--standalone", script),
		"VIRTUAL_ENV="+env, "PATH="+filepath.Join(env, "bin")+":"+os.Getenv("PATH")).ends(0, env+"\n")
}
