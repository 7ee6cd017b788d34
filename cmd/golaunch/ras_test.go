package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/launcher/report"
)

// standIn is a rank whose NCCL has a RAS service, as in src/ras/client_support.cc of NCCL 2.28.9.
// The service knows of another rank that is behind.
const standIn = `
import json, os, socketserver
def rank(n, pid, count):
    return {"rank": n, "host": "10.77.0.9", "pid": pid, "cuda_dev": 0, "nvml_dev": n, "status": {}, "collective_counts": {"AllReduce": count}}
report = {"nccl_version": "2.28.9", "communicators": [{
    "hash": "0x1", "secondary_hash": "0x2", "size": 4, "ranks": [rank(0, 70, 12), rank(1, 71, 12), rank(2, 72, 11)],
    "missing_ranks": [{"rank": 3, "host": "10.77.0.9", "pid": 73, "cuda_dev": 0, "nvml_dev": 3, "status": {}}]}], "ras": {}}
class Service(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            if line.startswith(b"STATUS"):
                self.wfile.write(json.dumps(report).encode() + b"\n")
                return
            self.wfile.write(b"SERVER PROTOCOL 2\n" if line.startswith(b"CLIENT") else b"OK\n")
host, port = os.environ["NCCL_RAS_ADDR"].split(":")
with socketserver.TCPServer((host, int(port)), Service) as server:
    print("up", os.environ["RANK"], flush=True)
    server.serve_forever()
`

func TestStatusAsksNCCL(t *testing.T) {
	t.Parallel()
	h, _, _, _ := up(t, 1)
	if err := os.WriteFile(filepath.Join(h.dir, "rank.py"), []byte(standIn), 0o600); err != nil {
		t.Fatal(err)
	}
	h.detach("a", 2, "--nodes", "2", "--gpus-per-node", "1", "--", "python3", "rank.py")
	h.detach("b", 1, "--procs-per-node", "1", "--", "sh", "-c", hung)

	line := "ras: 3 of 4 processes respond (NCCL 2.28.9, communicators: 1); process 72 at 10.77.0.9 is behind: it has started 11 AllReduce, and others 12\n"
	if out := h.do("status", "a", "--ras"); !strings.HasSuffix(out, line) || !strings.Contains(out, "n10") || strings.Contains(out, "\nb ") {
		t.Errorf("it prints %s", out)
	}
	var s struct{ Jobs []struct{ RAS report.RAS } }
	if err := json.Unmarshal([]byte(h.do("status", "a", "--ras", "--json")), &s); err != nil || len(s.Jobs) != 1 {
		t.Fatalf("%d jobs, %v", len(s.Jobs), err)
	}
	got := s.Jobs[0].RAS
	want := report.RAS{NCCL: "2.28.9", Communicators: 1, Processes: 4, Responding: 3, Behind: got.Behind}
	if len(got.Behind) != 1 || got.Behind[0].PID != 72 || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if out := h.do("status", "b", "--ras"); !strings.HasSuffix(out, "ras: no rank with a GPU runs on the node\n") {
		t.Errorf("it prints %s", out)
	}
	h.do("stop", "b")
	if out := h.do("status", "b", "--ras"); !strings.HasSuffix(out, "ras: no rank of the job runs\n") {
		t.Errorf("it prints %s", out)
	}
	h.start(0, "status", "--ras").ends(2, "--ras is about one job")
	h.start(0, "status", "no-such").ends(2, "no-such")
}
