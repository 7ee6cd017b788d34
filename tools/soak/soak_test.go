//go:build soak

// Package soak injects random faults into a real cluster of network namespaces, and into jobs
// started by the same command on each of its nodes, in turn, for a given time. It is a test, as
// root, on Linux, with iproute2 and util-linux:
//
//	make soak SECONDS=3600
package soak

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
)

var (
	duration = flag.Duration("duration", 20*time.Second, "how long faults are injected")
	seed     = flag.Uint64("seed", 0, "of the faults; 0 takes a new one")
)

const (
	head  = "10.76.0.2"
	at    = head + ":29400"
	lease = 2 * time.Second
	// wild is the time for which faults come while a job runs, and limit is the time that the job
	// may then take to end.
	wild  = 15 * time.Second
	limit = 3 * time.Minute
	// slow is the time after which the end of a job is reported as slow. By then, the faults are over,
	// and one or two leases have passed.
	slow = time.Minute
)

// soak is a cluster under fault.
type soak struct {
	t   *testing.T
	rng *rand.Rand
	ctx context.Context
	// dir has the files of ranks and golaunch, for the checks.
	dir, golaunch string
	head          *service
	agents        []*service
	// undo are the faults that are not over yet.
	undo   sync.WaitGroup
	faults map[string]int
	// full is true if a disk was full during this job.
	full bool
}

func TestSoak(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("go test ./tools/soak -v -duration=%v -seed=%d", *duration, *seed)
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s := &soak{t: t, rng: rand.New(rand.NewPCG(*seed, 1)), ctx: ctx, dir: t.TempDir(), faults: map[string]int{}}
	s.build()
	s.start(nettest.Nodes(t, head, "10.76.0.10", "10.76.0.11", "10.76.0.12", "10.76.0.13"))
	ends := map[int]int{}
	for n, end := 0, time.Now().Add(*duration); time.Now().Before(end) && ctx.Err() == nil && !t.Failed(); n++ {
		id, run, start := fmt.Sprintf("soak%d", n), []func(string) int{s.job, s.peers}[n%2], time.Now()
		ends[run(id)]++
		if took := time.Since(start); took > slow {
			t.Logf("job %s took %v", id, took)
		}
	}
	t.Logf("jobs by exit code: %v, faults: %v", ends, s.faults)
}

func (s *soak) build() {
	s.golaunch = filepath.Join(s.dir, "golaunch")
	if out, err := exec.Command("go", "build", "-o", s.golaunch, "../../cmd/golaunch").CombinedOutput(); err != nil {
		s.t.Fatalf("go build: %v\n%s", err, out)
	}
	s.write("token", strings.Repeat("k", 32))
	s.write("rank.sh", rank)
}

func (s *soak) write(name, text string) {
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// start keeps a coordinator and agents up until the end of the test. Every second agent leaves its
// ranks to the next one when it is killed.
func (s *soak) start(nodes []nettest.Node) {
	for i := range nodes[1:] {
		s.disk(agentName(i))
	}
	s.t.Cleanup(func() { s.clean("GOLAUNCH_SOAK=" + s.dir) }) // this runs before the disks are removed
	s.head = s.keep(nodes[0], "coordinator", "coordinator", "--listen", at, "--lease", lease.String(), "--state-dir", filepath.Join(s.dir, "state"))
	for i, node := range nodes[1:] {
		name := agentName(i)
		args := []string{"agent", "--coordinator", at, "--name", name, "--log-dir", filepath.Join(s.dir, name), "--allow-run-as-root"}
		if i%2 == 0 {
			args = append(args, "--adopt")
		}
		s.agents = append(s.agents, s.keep(node, name, args...))
	}
	said := s.file("status.err")
	for end := time.Now().Add(limit); s.command(nodes[0], said, "status", "--coordinator", at).Run() != nil; {
		if time.Now().After(end) {
			s.t.Fatalf("there is no coordinator after %v", limit)
		}
	}
}

func agentName(i int) string { return fmt.Sprintf("n%d", i+1) }

// disk returns a small disk for the logs of an agent.
func (s *soak) disk(name string) {
	dir := filepath.Join(s.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=4m"); err != nil {
		s.t.Fatalf("mount a disk for %s: %v", name, err)
	}
	s.t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			s.t.Errorf("unmount the disk of %s: %v", name, err)
		}
	})
}

// file opens a file until the end of the test. It is closed before earlier services end.
func (s *soak) file(name string) *os.File {
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = f.Close() }) // the processes have their own descriptors
	return f
}

// command runs golaunch on a node.
func (s *soak) command(node nettest.Node, errors *os.File, args ...string) *exec.Cmd {
	cmd := node.Command(append([]string{s.golaunch}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+s.dir, "GOLAUNCH_SOAK="+s.dir, "GOLAUNCH_TOKEN_FILE="+filepath.Join(s.dir, "token"))
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // only the test gets ^C
	cmd.Stderr = errors
	return cmd
}

// service is a golaunch that is started again whenever it ends.
type service struct {
	s         *soak
	node      nettest.Node
	name      string
	args, env []string
	// disk is the directory of the small disk that the service writes to.
	disk string
	// errors and output are the files that all its processes write to.
	errors, output *os.File
	// ends reports whether a process that has ended is the last of its service. If ends is nil, the
	// service is always started again.
	ends func(*os.ProcessState) bool
	// busy is true while the service has a fault.
	busy sync.Mutex
	// absence is how long the service stays away when it has ended.
	absence time.Duration

	mu      sync.Mutex
	process *os.Process
	over    bool
}

func (s *soak) keep(node nettest.Node, name string, args ...string) *service {
	v := &service{s: s, node: node, name: name, args: args, disk: filepath.Join(s.dir, name), errors: s.file(name + ".err")}
	gone := make(chan struct{})
	go v.live(gone)
	s.t.Cleanup(func() {
		v.end()
		select {
		case <-gone:
		case <-time.After(limit):
			s.t.Errorf("%s does not end after SIGTERM", name)
			v.signal(syscall.SIGKILL)
			<-gone
		}
	})
	return v
}

func (v *service) live(gone chan<- struct{}) {
	defer close(gone)
	for {
		cmd := v.s.command(v.node, v.errors, v.args...)
		cmd.Env = append(cmd.Env, v.env...)
		if v.output != nil { // as an interface, nil would be a file
			cmd.Stdout = v.output
		}
		v.mu.Lock()
		if v.over {
			v.mu.Unlock()
			return
		}
		if err := cmd.Start(); err != nil {
			v.mu.Unlock()
			v.s.t.Errorf("start %s: %v", v.name, err)
			return
		}
		v.process = cmd.Process
		v.mu.Unlock()
		_ = cmd.Wait() // with any exit code
		if v.ends != nil && v.ends(cmd.ProcessState) {
			return
		}
		v.mu.Lock()
		away := v.absence
		v.absence = 0
		v.mu.Unlock()
		v.s.rest(away + 100*time.Millisecond)
	}
}

func (v *service) end() {
	v.mu.Lock()
	v.over = true
	v.mu.Unlock()
	v.signal(syscall.SIGCONT)
	v.signal(syscall.SIGTERM)
}

// signal signals the process, if there is one.
func (v *service) signal(sig syscall.Signal) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.process != nil {
		_ = v.process.Signal(sig) // it may have ended
	}
}

// kill ends the service, and keeps it away for a time.
func (v *service) kill(sig syscall.Signal, away time.Duration) {
	v.mu.Lock()
	v.absence = away
	v.mu.Unlock()
	v.signal(sig)
}

// pid is 0 before the service runs.
func (v *service) pid() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.process == nil {
		return 0
	}
	return v.process.Pid
}
