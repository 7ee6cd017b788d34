package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// several is a cluster that three machines coordinate, each with its own home. A fourth machine has
// everything else.
type several struct {
	*heads
	homes []string
	leads []*process
	bin   string
}

// peersList is the list that is given to each coordinator.
const peersList = "10.77.0.2,10.77.0.3,10.77.0.4"

const severalAt = "10.77.0.2:29400,10.77.0.3:29400,10.77.0.4:29400"

func newSeveral(t *testing.T, bin string, args ...string) *several {
	t.Helper()
	h := &heads{t: t, nodes: nettest.Nodes(t, "10.77.0.2", "10.77.0.3", "10.77.0.4", "10.77.0.10"), home: t.TempDir(), dir: t.TempDir(), at: severalAt}
	s := &several{heads: h, leads: make([]*process, 3), bin: bin}
	token := tokenFile(t)
	for range 3 {
		s.homes = append(s.homes, t.TempDir())
	}
	for _, home := range append([]string{h.home}, s.homes...) {
		if err := os.Mkdir(filepath.Join(home, ".golaunch"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(token, filepath.Join(home, ".golaunch", "token")); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		s.lead(i, args...)
	}
	s.leads[0].line("10.77.0.2:29400 leads the cluster from now on")
	return s
}

// lead starts a coordinator.
func (s *several) lead(i int, args ...string) {
	s.t.Helper()
	cmd := s.nodes[i].Command(append([]string{s.bin, "coordinator", "--peers", peersList}, args...)...)
	s.leads[i] = start(s.t, cmd, "HOME="+s.homes[i], "GOLAUNCH_COORDINATOR=")
}

// start runs golaunch on the machine without a coordinator.
func (s *several) start(args ...string) *process {
	s.t.Helper()
	cmd := s.nodes[3].Command(append([]string{s.bin}, args...)...)
	cmd.Dir = s.dir
	return start(s.t, cmd, "HOME="+s.home, "GOLAUNCH_COORDINATOR=")
}

// ask runs a verb on a node without a coordinator, and checks that it succeeds.
func (s *several) ask(args ...string) string {
	s.t.Helper()
	return ended(s.t, s.start(args...))
}

// state waits until a coordinator is shown in a state.
func (s *several) state(i int, state string) {
	s.t.Helper()
	s.shows(regexp.MustCompile(fmt.Sprintf(`(?m)^%v:29400 +%s$`, s.nodes[i].Addr, state)).MatchString)
}

// ready waits until a number of agents have joined the coordinator.
func (s *several) ready(agents int) {
	s.t.Helper()
	all := regexp.MustCompile(`"state": *"ready"`)
	s.shows(func(out string) bool { return len(all.FindAllString(out, -1)) == agents }, "--json")
}

// shows waits until golaunch status shows a text.
func (s *several) shows(what func(string) bool, args ...string) {
	s.t.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		out := s.ask(append([]string{"status", "--coordinator", s.at}, args...)...)
		if what(out) {
			return
		}
		if time.Now().After(limit) {
			s.t.Fatalf("the cluster is not as it should be:\n%s", out)
		}
	}
}

// onPeers runs a documented command on a cluster with three coordinators, and returns its output.
func onPeers(t *testing.T, line string) string {
	s := newSeveral(t, golaunch(t))
	s.dir = workplace(t)
	text := ""
	for i := range 2 {
		p := s.start("agent", "--coordinator", peersList, "--name", fmt.Sprint("n", i), "--address", fmt.Sprintf("127.0.0.%d", i+1), "--gpus", "8")
		p.line(" is in the cluster of ")
		said, _ := p.out.read()
		text += said
	}
	if !strings.Contains(line, "coordinator n0,n1,n2 --nodes") {
		said, _ := s.leads[0].out.read()
		return text + said
	}
	cmd := s.nodes[3].Command("sh", "-c", strings.Replace(line, "n0,n1,n2", peersList, 1))
	cmd.Dir = s.dir
	return ended(t, start(t, cmd, "HOME="+s.home, path(s.dir)))
}

// peersLease is long enough for a machine with so many processes and other tests.
const peersLease = "20s"

// TestAnyCoordinatorMayBeLost: each of three is killed, stopped and cut off in turn, under 4 jobs
// of 5 agents each, or 20 for [suite.All]. Ranks do not notice, and clients keep watching.
func TestAnyCoordinatorMayBeLost(t *testing.T) {
	t.Parallel()
	// With so many processes, each should be as quick as a user's process. So the race detector is
	// off; it has seen all of this code in other tests.
	s := newSeveral(t, unraced(t), "--lease", peersLease)
	end := gate(t, filepath.Join(s.dir, "end"))
	many := 4
	if suite.All() {
		many = 20
	}
	var agents, jobs []*process
	for i := range 5 * many {
		agents = append(agents, s.start("agent", "--coordinator", s.at, "--name", fmt.Sprint("n", i), "--address", fmt.Sprintf("127.0.0.%d", i+1),
			"--gpus", "1", "--log-dir", t.TempDir()))
	}
	for _, p := range agents {
		p.line(" is in the cluster of ")
	}
	for i := range many {
		p := s.start("--coordinator", s.at, "--job-id", fmt.Sprint("j", i), "--nodes", "5", "--gpus-per-node", "1", "--max-restarts", "0",
			"--env", mark(t), "--", "sh", "-c", "echo up $RANK; read line <end; echo rank $RANK ends")
		for rank := range 5 {
			p.line(fmt.Sprintf("up %d", rank))
		}
		jobs = append(jobs, p)
	}
	kill := func(i int) (back func()) {
		s.leads[i].kill()
		return func() { s.lead(i, "--lease", peersLease) }
	}
	halt := func(i int) func() {
		s.leads[i].signal(syscall.SIGSTOP)
		return func() { s.leads[i].signal(syscall.SIGCONT) }
	}
	cut := func(i int) func() {
		s.nodes[i].Cut(t)
		return func() { s.nodes[i].Join(t) }
	}
	for i, ways := range [][]func(int) func(){{kill}, {kill, halt}, {kill, cut}} {
		for what, lose := range ways {
			back := lose(i)
			s.state(i, "silent")
			id := fmt.Sprintf("more%d%d", i, what)
			s.ask("--coordinator", s.at, "--detach", "--job-id", id, "--procs-per-node", "1", "--", "true")
			if out := s.ask("logs", "-f", "--coordinator", s.at, id); strings.Contains(out, "missing") {
				t.Error(out)
			}
			back()
			s.ready(5 * many)
			s.state(i, "(leads|follows)")
		}
	}
	end(5 * len(jobs))
	for _, p := range jobs {
		p.ends(0, "rank 0 ends", "rank 4 ends", "job succeeded: 5 ranks exited 0")
	}
	for _, p := range agents {
		p.signal(syscall.SIGTERM)
	}
	for _, p := range agents {
		p.ends(143)
	}
	for _, p := range s.leads {
		p.signal(syscall.SIGTERM)
		p.ends(0)
	}
	gone(t, mark(t))
}

// TestBadPeers: the error names the mistake in the list, and existing state is not lost.
func TestBadPeers(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, golaunch(t))
	s.ask("--coordinator", s.at, "--detach", "--job-id", "a", "--procs-per-node", "1", "--", "true")
	list := func(node int, want string, args ...string) {
		t.Helper()
		cmd := s.nodes[node].Command(append([]string{golaunch(t), "coordinator"}, args...)...)
		start(t, cmd, "HOME="+s.homes[0], "GOLAUNCH_COORDINATOR=").ends(2, want)
	}
	list(0, "2 peers: 3, 5 or 7, for one more than half of them must be there", "--peers", "10.77.0.2,10.77.0.3")
	list(0, "one is listed twice", "--peers", "10.77.0.2,10.77.0.3,10.77.0.2:29400")
	list(3, "none of them is this machine; say which with --listen", "--peers", "10.77.0.2,10.77.0.3,10.77.0.4")
	list(3, `listen "10.77.0.10": it is none of the peers`, "--peers", "10.77.0.2,10.77.0.3,10.77.0.4", "--listen", "10.77.0.10")
	list(0, "this machine is several of them", "--peers", "10.77.0.2:1,10.77.0.2:2,10.77.0.4")
	s.leads[0].signal(syscall.SIGTERM)
	s.leads[0].ends(0)
	cmd := s.nodes[0].Command(golaunch(t), "coordinator", "--listen", "10.77.0.2")
	start(t, cmd, "HOME="+s.homes[0], "GOLAUNCH_COORDINATOR=").ends(125, "are the jobs of a coordinator with --peers, which this one would forget")
	s.ask("status", "--coordinator", s.at, "a")
	other := s.nodes[0].Command(golaunch(t), "coordinator", "--peers", "10.77.0.2,10.77.0.3,10.77.0.10", "--state-dir", t.TempDir())
	p := start(t, other, "HOME="+s.homes[0], "GOLAUNCH_COORDINATOR=")
	p.line("10.77.0.3:29400 is not a coordinator of the same cluster: --peers differs: ")
	p.signal(syscall.SIGTERM)
	p.ends(0)
	s.ask("status", "--coordinator", s.at, "a")
}
