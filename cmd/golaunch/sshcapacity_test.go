package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/sshtest"
)

// TestCapacityOverSSH: each host gets an agent for a job, and loses the agent when it is idle. The
// agent finds the token without a file. The coordinator is killed while the job runs, and the
// agents live on.
func TestCapacityOverSSH(t *testing.T) {
	t.Parallel()
	hosts := sshtest.Start(t, 2)
	h := &heads{t: t, nodes: append(hosts.Nodes[:0:0], hosts.Head), home: t.TempDir(), dir: t.TempDir(), at: "10.78.0.2:29400"}
	file := h.capacity("kinds:\n  pool:\n    cpus: 1\n    max: 2\n    idle: 1s\n    agent: [--allow-run-as-root]\n    ssh: [\"closed\", \"n[1-2]\"]\n")
	head := func(args ...string) *process {
		cmd := hosts.Command(append([]string{golaunch(t)}, args...)...)
		cmd.Dir = h.dir
		return start(t, cmd, "HOME="+h.home, "GOLAUNCH_COORDINATOR="+h.at)
	}
	coordinate := func() *process {
		p := head("coordinator", "--listen", "10.78.0.2", "--capacity", file)
		p.line("golaunch agent --coordinator ")
		return p
	}
	coordinator := coordinate()
	job := head("--nodes", "2", "--procs-per-node", "1", "--", "sh", "-c", `echo rank $RANK on $(hostname) has "[$GOLAUNCH_TOKEN]"; while [ ! -e go ]; do sleep 0.1; done`)
	job.line(`rank . on n1 has \[\]`)
	job.line(`rank . on n2 has \[\]`)
	coordinator.kill()
	coordinator = coordinate()
	h.touch("go")
	job.ends(0, "job succeeded")
	coordinator.line("pool-[a-z0-9]+-1 is gone")
	coordinator.line("pool-[a-z0-9]+-2 is gone")
	coordinator.signal(15)
	coordinator.wait()
	left(t, hosts)
	logs, err := filepath.Glob("/tmp/golaunch-" + coordinator.match("(pool-[a-z0-9]+-)1 is gone")[1] + "*.log")
	if err != nil || len(logs) > 0 {
		t.Errorf("%s are left (%v)", strings.Join(logs, ", "), err)
	}
}
