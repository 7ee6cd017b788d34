package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestTheCoordinatorMoves: the coordinator moves to another machine, with its name and its log.
// Agents find it by the name, and no rank notices.
func TestTheCoordinatorMoves(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	state, hosts := t.TempDir(), filepath.Join(t.TempDir(), "hosts")
	name := func(line string) {
		t.Helper()
		if err := os.WriteFile(hosts, []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	coordinator := h.coordinate("--state-dir", state)
	name("10.77.0.2 head")
	own := h.nodes[2].Command("unshare", "--mount", "sh", "-c", "mount --bind $HOSTS /etc/hosts && exec "+golaunch(t)+
		" agent --coordinator head --name n9 --gpus 1")
	own.Dir = h.dir
	start(t, own, "HOME="+h.home, "HOSTS="+hosts, "GOLAUNCH_COORDINATOR=").line("n9 .* is in the cluster of head")
	h.detach("a", 1, "--gpus-per-node", "1", "--", "sh", "-c", hung)

	coordinator.kill()
	name("10.77.0.10 head")
	h.start(1, "coordinator", "--listen", "10.77.0.10", "--state-dir", state).line("jobs taken over: 1")
	h.start(1, "logs", "-f", "a").line("up 0")
	var s clusterStatus
	if err := json.Unmarshal([]byte(ended(t, h.start(1, "status", "--json"))), &s); err != nil {
		t.Fatal(err)
	}
	if j := s.job(t, "a"); j.Phase != "running" || j.Attempt != 0 || j.Restarts != 0 {
		t.Errorf("the job: %+v", j)
	}
}
