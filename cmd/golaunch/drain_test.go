package main

import (
	"syscall"
	"testing"
)

// saver is a rank that saves when it finds a notice, and says so; its second attempt ends well.
const saver = `
echo up $RANK
test $TORCHELASTIC_RESTART_COUNT = 0 || { echo resumed on $GOLAUNCH_NODE; exit 0; }
trap 'grep -q deadline $GOLAUNCH_NOTICE_FILE && echo saved $RANK && touch $GOLAUNCH_NOTICE_FILE.ready' USR1
while :; do sleep 1000 & wait; done`

// TestSwap takes a node out of a job for maintenance.
func TestSwap(t *testing.T) {
	h, coordinator, n10, n9 := up(t, 1)
	h.detach("a", 1, "--gpus-per-node", "1", "--notice-signal", "USR1", "--", "sh", "-c", saver)
	follow := h.start(0, "logs", "-f", "a")
	follow.line("up 0")
	if out := h.do("swap", "n9", "--within", "10m", "--json"); out != "{\n  \"node\": \"n9\"\n}\n" {
		t.Errorf("swap prints %q", out)
	}
	n9.ends(0, "drained")
	follow.line("saved 0")
	follow.line("resumed on n10")
	job := h.status().job(t, "a")
	if job.Result == nil || job.Result.Code != 0 || job.Result.Restarts != 0 {
		t.Errorf("%+v", job)
	}
	coordinator.line("n9 is gone")
	h.start(0, "swap", "n9").ends(2, `there is no node "n9" here`)
	n10.cmd.Process.Signal(syscall.SIGTERM)
	n10.ends(143)
}

// TestDrainTime tells an agent to end: the ranks of all nodes of the job have time to save.
func TestDrainTime(t *testing.T) {
	nodes, token := cluster(t)
	job := []string{
		"--nodes", "2", "--procs-per-node", "1", "--drain-time", "10m", "--notice-signal", "USR1", "--", "sh", "-c", saver,
	}
	a := start(t, join(t, nodes[0], "a", token, job...))
	b := start(t, join(t, nodes[1], "b", token, job...))
	a.line("up 0")
	b.line("up 1")
	c := start(t, join(t, nodes[2], "c", token, job...))
	a.line("c .* is here as a spare")
	b.cmd.Process.Signal(syscall.SIGTERM)
	b.ends(143, "saved 1")
	a.ends(0, "b leaves: got SIGTERM; the ranks have 10m0s to get ready", "saved 0", "attempt 1 follows; b has left", "resumed on a")
	c.ends(0, "resumed on c")
}

// TestSpotNotice has a metadata service of AWS on a node of a job, which takes the machine back.
func TestSpotNotice(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	if out, err := nodes[1].Command("ip", "address", "add", "169.254.169.254/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	server := start(t, nodes[1].Command("python3", "-c", metadata))
	server.line("serving")
	job := []string{"--nodes", "2", "--procs-per-node", "1", "--notice-signal", "USR1", "--spot-notice", "aws", "--", "sh", "-c", saver}
	a := start(t, join(t, nodes[0], "a", token, job...))
	b := start(t, join(t, nodes[1], "b", token, job...))
	a.line("up 0")
	b.line("up 1")
	c := start(t, join(t, nodes[2], "c", token, job...))
	a.line("c .* is here as a spare")
	server.cmd.Process.Signal(syscall.SIGUSR1)
	b.ends(143, "saved 1", "AWS will terminate this spot instance")
	a.ends(0, "b leaves: AWS will terminate this spot instance", "saved 0", "resumed on a")
	c.ends(0, "resumed on c")
	server.cmd.Process.Kill()
}

// metadata is AWS's service, which has a notice from SIGUSR1 on.
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
