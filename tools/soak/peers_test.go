//go:build soak

package soak

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// peers runs a job of two nodes and two spares. Each node runs the same command, is restarted when
// it ends, like a pod, and may lead. The first node that ends for good decides how the job ended;
// peers returns its exit code.
func (s *soak) peers(id string) int {
	dir := filepath.Join(s.dir, id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	perNode, over := 1+s.rng.IntN(3), make(chan int, len(s.agents))
	var all []*service
	var gone []chan struct{}
	for _, a := range s.agents {
		v, g := s.peer(id, a, perNode, over), make(chan struct{})
		go v.live(g)
		all, gone = append(all, v), append(gone, g)
	}
	done := make(chan struct{})
	code := -1
	go func() {
		defer close(done)
		select {
		case code = <-over:
		case <-time.After(wild + limit):
			s.violated(id+".n1", "it does not end in the calm")
		case <-s.ctx.Done():
		}
	}()
	s.torment(id, all, done)
	<-done
	s.disband(all, gone)
	s.checkPeers(id, dir, code, 2*perNode)
	for _, a := range s.agents {
		if err := os.RemoveAll(filepath.Join(a.disk, "peers")); err != nil {
			s.t.Error(err)
		}
	}
	return code
}

// peer is the golaunch of a job on the node of an agent. over gets the exit code of its final end.
func (s *soak) peer(id string, a *service, perNode int, over chan<- int) *service {
	name := id + "." + a.name
	return &service{
		s: s, node: a.node, name: name, disk: a.disk, errors: s.file(name + ".err"), output: s.file(name + ".out"),
		env: []string{"KUBERNETES_SERVICE_HOST=10.96.0.1"},
		args: []string{
			"run", "--rendezvous", s.agents[0].node.Addr.String() + ":29500", "--name", a.name, "--job-id", id, "--nodes", "2", "--spares", "2",
			"--procs-per-node", fmt.Sprint(perNode), "--lease", lease.String(), "--max-restarts", "1000", "--backoff", "0s", "--grace", "1s",
			"--placement-timeout", limit.String(), "--log-dir", filepath.Join(a.disk, "peers"),
			"--env", "SOAK=" + filepath.Join(s.dir, id), "--env", "SOAK_JOB=" + s.dir + id, "--", "sh", filepath.Join(s.dir, "rank.sh"),
		},
		ends: func(state *os.ProcessState) bool {
			code := state.ExitCode()
			if slices.Contains([]int{125, 143, -1}, code) { // the peer lost the others, had to leave, or was killed
				return false
			}
			over <- code
			return true
		},
	}
}

// disband waits until all peers know how the job ended. A peer that was away, or has started again,
// never learns this: it is told to end.
func (s *soak) disband(all []*service, gone []chan struct{}) {
	told := time.After(5 * lease)
	for i, v := range all {
		v.mu.Lock()
		v.over = true
		v.mu.Unlock()
		select {
		case <-gone[i]:
			continue
		case <-told:
		case <-s.ctx.Done():
		}
		for _, v := range all {
			v.end()
		}
		told = nil
		select {
		case <-gone[i]:
		case <-time.After(limit):
			s.violated(v.name, "it does not end after SIGTERM")
			v.signal(syscall.SIGKILL)
			<-gone[i]
		}
	}
}

func (s *soak) checkPeers(id, dir string, code, ranks int) {
	if text, err := os.ReadFile(filepath.Join(dir, "violations")); err == nil {
		for _, a := range s.agents {
			s.violated(id+"."+a.name, "two attempts lived at a time: %s", text)
		}
	}
	for rank := range ranks {
		if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf("done.%d", rank))); err != nil && code == 0 {
			s.violated(id+".n1", "it ends with 0, and rank %d has not ended: %v", rank, err)
		}
	}
	for _, a := range s.agents {
		name := id + "." + a.name
		f, err := os.Open(filepath.Join(s.dir, name+".out"))
		if err != nil {
			s.violated(name, "%v", err)
			continue
		}
		for scan := bufio.NewScanner(f); scan.Scan(); {
			if m := line.FindStringSubmatch(scan.Text()); m == nil || m[1] != "" && m[1] != m[2] {
				s.violated(name, "a line is not whole: %q", scan.Text())
			}
		}
		_ = f.Close() // only read
	}
	s.dead(id, 1)
}
