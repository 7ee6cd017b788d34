package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
)

// saver is a rank that saves when it finds a notice, and reports it; its second attempt succeeds.
const saver = `
trap 'grep -q deadline $GOLAUNCH_NOTICE_FILE && echo saved $RANK && touch $GOLAUNCH_NOTICE_FILE.ready' USR1
echo up $RANK
test $TORCHELASTIC_RESTART_COUNT = 0 || { echo resumed on $GOLAUNCH_NODE; exit 0; }
while :; do sleep 1000 & wait; done`

// TestSwap takes a node out of a job for maintenance.
func TestSwap(t *testing.T) {
	t.Parallel()
	h, coordinator, n10, n9 := up(t, 1)
	h.detach("a", 1, "--gpus-per-node", "1", "--notice-signal", "USR1", "--", "sh", "-c", saver)
	follow := h.start(0, "logs", "-f", "a")
	follow.line("up 0")
	if out := h.do("swap", "n9", "--within", "10m", "--json"); out != "{\n  \"format_version\": 1,\n  \"node\": \"n9\"\n}\n" {
		t.Errorf("swap prints %q", out)
	}
	n9.ends(0, "drained")
	follow.line("saved 0")
	follow.line("resumed on n10")
	follow.wait() // ends with the job; its code depends on whether n9 could still send everything
	job := h.status().job(t, "a")
	if job.Result == nil || job.Result.Code != 0 || job.Result.Restarts != 0 {
		t.Errorf("%+v", job)
	}
	coordinator.line("n9 is gone")
	h.start(0, "swap", "n9").ends(2, `there is no node "n9" here`)
	n10.signal(syscall.SIGTERM)
	n10.ends(143)
}

// TestDrainTime: if an agent gets SIGTERM, the ranks of all nodes of the job have time to save.
func TestDrainTime(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	job := []string{
		"--nodes", "2", "--procs-per-node", "1", "--drain-time", "10m", "--notice-signal", "USR1", "--", "sh", "-c", saver,
	}
	a, b := both(t, nodes, token, job...)
	a.line("up 0")
	b.line("up 1")
	a.line("attempt 0 runs") // a later state within 200 ms would hide the state of the spare
	c := start(t, join(t, nodes[2], "c", token, job...))
	a.line("c .* is here as a spare")
	b.signal(syscall.SIGTERM)
	b.ends(143, "saved 1")
	a.ends(0, "b leaves: got SIGTERM; the ranks have 10m0s to get ready", "saved 0", "attempt 1 follows; b has left", "resumed on a")
	c.ends(0, "resumed on c")
}

// TestSpotNotice: the metadata service of AWS on a node of a job announces that the machine is
// taken back.
func TestSpotNotice(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	cloud := spot(t, nodes[1])
	job := []string{"--nodes", "2", "--procs-per-node", "1", "--notice-signal", "USR1", "--spot-notice", "aws", "--", "sh", "-c", saver}
	a, b := both(t, nodes, token, job...)
	a.line("up 0")
	b.line("up 1")
	a.line("attempt 0 runs") // a later state within 200 ms would hide the state of the spare
	c := start(t, join(t, nodes[2], "c", token, job...))
	a.line("c .* is here as a spare")
	cloud.takes()
	b.ends(143, "saved 1", "AWS will terminate this spot instance")
	a.ends(0, "b leaves: AWS will terminate this spot instance", "saved 0", "resumed on a")
	c.ends(0, "resumed on c")
}

// TestSpotNoticeOfTheLeadingNode: the leading node leaves like any other, and another node leads.
func TestSpotNoticeOfTheLeadingNode(t *testing.T) {
	t.Parallel()
	nodes := nettest.Nodes(t, "10.77.0.2", "10.77.0.3", "10.77.0.4", "10.77.0.5")
	token := tokenFile(t)
	cloud := spot(t, nodes[0])
	// The job outlives its first leader.
	end := filepath.Join(t.TempDir(), "end")
	job := []string{
		"--nodes", "3", "--spares", "1", "--procs-per-node", "1", "--notice-signal", "USR1", "--spot-notice", "aws", "--", "sh", "-c",
		strings.Replace(saver, "exit 0", "while [ ! -e $0 ]; do sleep 0.05; done; exit 0", 1), end,
	}
	var all []*process
	for i, name := range []string{"a", "b", "c", "d"} {
		all = append(all, start(t, join(t, nodes[i], name, token, job...)))
		if i == 2 {
			all[0].line("attempt 0 runs")
		}
	}
	all[0].line("d .*spare")
	all[0].line("can take over from a: [bcd], [bcd]$")
	cloud.takes()
	all[0].ends(143, "a leaves: AWS will terminate this spot instance; the ranks have ", "saved 0", "this node has left: AWS will")
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	led := 0
	for i, p := range all[1:] {
		code, text := p.wait()
		if code != 0 || strings.Contains(text, "restart 1 of") || i < 2 && !strings.Contains(text, "saved") || !strings.Contains(text, "resumed on") {
			t.Errorf("%s ends with %d, want 0, at no cost", p.cmd.Args, code)
		}
		led += strings.Count(text, "leads the job from now on")
	}
	if led != 1 {
		t.Errorf("%d nodes took over", led)
	}
}

// TestSpotNoticeEndsAJob: the leading node leaves, and no other node can lead the job.
func TestSpotNoticeEndsAJob(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	cloud := spot(t, nodes[0])
	job := []string{"--nodes", "2", "--procs-per-node", "1", "--notice-signal", "USR1", "--spot-notice", "aws", "--", "sh", "-c", saver}
	a := start(t, join(t, nodes[0], "a", token, job...))
	b := start(t, join(t, nodes[1], "b", token, job...))
	a.line("up 0")
	b.line("up 1")
	cloud.takes()
	b.ends(143, "saved 1")
	a.ends(143, "saved 0", "job preempted: AWS will terminate this spot instance", "submit it again")
}

// TestDrainTimeOfTheJob: the leader ends the job, and the ranks of all nodes have time to save.
func TestDrainTimeOfTheJob(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	job := []string{"--nodes", "2", "--procs-per-node", "1", "--drain-time", "10m", "--notice-signal", "USR1", "--", "sh", "-c", saver}
	a := start(t, join(t, nodes[0], "a", token, job...))
	b := start(t, join(t, nodes[1], "b", token, job...))
	a.line("up 0")
	b.line("up 1")
	a.cmd.Process.Signal(syscall.SIGTERM)
	b.ends(143, "saved 1")
	a.ends(143, "saved 0", "job cancelled: got SIGTERM")
}

// TestPodsAreDeleted: all pods are deleted at once, so all nodes that could lead the job leave it.
func TestPodsAreDeleted(t *testing.T) {
	t.Parallel()
	for n, test := range map[int]struct{ ready, message string }{
		2: {"attempt 0 runs", `cancelled code=143 node=train-0 restarts=0/3 cause="job cancelled: got SIGTERM"`},
		3: {"can take over from train-0: .*, ", `preempted code=143 node=train-0 restarts=0/3 cause="this node has left: got SIGTERM"`},
	} {
		t.Run(strconv.Itoa(n), func(t *testing.T) { podsAreDeleted(t, n, test.ready, test.message) })
	}
}

func podsAreDeleted(t *testing.T, n int, ready, message string) {
	ps := indexedJob(t, n)
	ps.publish()
	var all []*process
	for _, p := range ps.all {
		all = append(all, p.run(fmt.Sprintf("--nodes=%d", n), "--procs-per-node=1", "--drain-time=10m", "--notice-signal=USR1", "--", "sh", "-c", saver))
	}
	for _, p := range all {
		p.line("up .")
	}
	all[0].line(ready)
	for _, p := range all {
		p.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, p := range all {
		p.ends(143, "saved ")
	}
	ps.all[0].message("golaunch: " + message)
}

// takesBack is the metadata service of a cloud.
type takesBack struct{ *process }

// spot starts AWS's metadata service on a node.
func spot(t *testing.T, n nettest.Node) takesBack {
	if out, err := n.Command("ip", "address", "add", "169.254.169.254/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	server := start(t, n.Command("python3", "-c", metadata))
	server.line("serving")
	t.Cleanup(func() { server.cmd.Process.Kill() })
	return takesBack{server}
}

// takes gives notice.
func (c takesBack) takes() { c.cmd.Process.Signal(syscall.SIGUSR1) }

// metadata is the service of AWS. From SIGUSR1 on, it has a notice.
const metadata = `
import datetime, http.server, json, signal
notice = False
def take(*_):
    global notice
    notice = True
signal.signal(signal.SIGUSR1, take)
class Handler(http.server.BaseHTTPRequestHandler):
    def say(self, code, text=""):
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    def do_PUT(self):
        self.say(200, "secret")
    def do_GET(self):
        if self.headers.get("X-aws-ec2-metadata-token") != "secret":
            return self.say(401)
        if not notice:
            return self.say(404)
        at = datetime.datetime.utcnow() + datetime.timedelta(minutes=2)
        self.say(200, json.dumps({"action": "terminate", "time": at.strftime("%Y-%m-%dT%H:%M:%SZ")}))
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("169.254.169.254", 80), Handler)
print("serving", flush=True)
server.serve_forever()
`
