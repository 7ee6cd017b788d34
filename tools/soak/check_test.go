//go:build soak

package soak

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// rank holds a lock for as long as any of its processes lives, and reports if another attempt holds
// the lock.
const rank = `exec 9>>"$SOAK/lock.$RANK"
flock -n 9 || echo "attempt $TORCHELASTIC_RESTART_COUNT of rank $RANK on $GOLAUNCH_NODE, and $(cat "$SOAK/life.$RANK")" >>"$SOAK/violations"
echo "attempt $TORCHELASTIC_RESTART_COUNT on $GOLAUNCH_NODE since $(date +%T.%N)" >"$SOAK/life.$RANK"
i=0
while [ $i -lt 60 ]; do
	i=$((i+1))
	echo "line $TORCHELASTIC_RESTART_COUNT $RANK $i end"
	sleep 0.1
done
echo "$TORCHELASTIC_RESTART_COUNT" >"$SOAK/done.$RANK"
`

// job runs a job under faults, and checks that nothing is left of it. It returns the exit code.
func (s *soak) job(id string) int {
	dir := filepath.Join(s.dir, id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	nodes, perNode := 1+s.rng.IntN(3), 1+s.rng.IntN(3)
	restart := []string{"job", "job", "node", "rank"}[s.rng.IntN(4)]
	s.full = false
	var out bytes.Buffer
	cmd := s.command(s.head.node, s.file(id+".err"), "run", "--coordinator", at, "--job-id", id, "--nodes", fmt.Sprint(nodes), "--procs-per-node", fmt.Sprint(perNode),
		"--restart", restart, "--max-restarts", "1000", "--backoff", "0s", "--grace", "1s", "--placement-timeout", limit.String(),
		"--env", "SOAK="+dir, "--env", "SOAK_JOB="+s.dir+id, "--", "sh", filepath.Join(s.dir, "rank.sh"))
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	over, late := make(chan struct{}), time.AfterFunc(wild+limit, func() { _ = cmd.Process.Kill() })
	interrupted := make(chan struct{})
	go func() {
		defer close(interrupted)
		select {
		case <-s.ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		case <-over:
		}
	}()
	tormented := make(chan struct{})
	go func() {
		defer close(tormented)
		s.torment(id, append([]*service{s.head}, s.agents...), over)
	}()
	_ = cmd.Wait() // the exit code is enough
	close(over)
	<-tormented
	<-interrupted
	code := cmd.ProcessState.ExitCode()
	if !late.Stop() {
		s.violated(id, "it does not end in the calm")
	}
	if s.ctx.Err() == nil {
		s.check(id, dir, code, nodes*perNode, out.Bytes())
	}
	return code
}

func (s *soak) violated(id, format string, args ...any) {
	said, _ := os.ReadFile(filepath.Join(s.dir, id+".err"))
	s.t.Errorf("seed %d, job %s: %s\n%s", *seed, id, fmt.Sprintf(format, args...), said[max(0, len(said)-4000):])
}

func (s *soak) check(id, dir string, code, ranks int, out []byte) {
	if text, err := os.ReadFile(filepath.Join(dir, "violations")); err == nil {
		s.violated(id, "two attempts lived at a time: %s", text)
	} else if !errors.Is(err, os.ErrNotExist) {
		s.violated(id, "%v", err)
	}
	for rank := range ranks {
		if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf("done.%d", rank))); err != nil && code == 0 {
			s.violated(id, "it ends with 0, and rank %d has not ended: %v", rank, err)
		}
	}
	said, err := os.ReadFile(filepath.Join(s.dir, id+".err"))
	if code != 0 && (err != nil || !why.Match(said)) {
		s.violated(id, "it ends with %d and does not say why", code)
	}
	s.lines(id, out)
	s.dead(id, code)
}

// A job of one rank has no prefixes.
var line = regexp.MustCompile(`^(?:\[r(\d+) n\d+\] )?line \d+ (\d+) \d+ end$`)

// why is the message about an end without success.
var why = regexp.MustCompile("job (failed|cancelled|timed out)|the coordinator at")

// lines checks that lines are whole, and that each line comes once and has the prefix of the rank
// that wrote it. Lines that were lost because of a full disk are reported instead.
func (s *soak) lines(id string, out []byte) {
	if s.full && bytes.Contains(out, []byte("bytes are missing here")) {
		return
	}
	seen := map[string]bool{}
	for scan := bufio.NewScanner(bytes.NewReader(out)); scan.Scan(); {
		switch m := line.FindStringSubmatch(scan.Text()); {
		case m == nil || m[1] != "" && m[1] != m[2]:
			s.violated(id, "a line is not whole: %q", scan.Text())
		case seen[m[0]]:
			s.violated(id, "a line comes twice: %q", scan.Text())
		default:
			seen[m[0]] = true
		}
	}
}

// dead checks that nothing of a job lives: at once after success, and otherwise within a lease and
// the kill time, because its end may be unknown.
func (s *soak) dead(id string, code int) {
	if code != 0 {
		s.wait("SOAK_JOB=" + s.dir + id)
	}
	for _, pid := range marked("SOAK_JOB=" + s.dir + id) {
		s.violated(id, "process %d lives after the end, with %d", pid, code)
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}

// wait waits for the end of all processes with a variable, within limits.
func (s *soak) wait(variable string) {
	for end := time.Now().Add(5 * lease); len(marked(variable)) > 0 && time.Now().Before(end); {
		<-time.After(100 * time.Millisecond)
	}
}

// clean checks that no process is left, and ends any that is.
func (s *soak) clean(variable string) {
	s.wait(variable)
	for _, pid := range marked(variable) {
		command, _ := os.ReadFile(proc(pid, "cmdline"))
		s.t.Errorf("seed %d: process %d is left: %q", *seed, pid, command)
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}

// marked lists the processes with a variable in their environment.
func marked(variable string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is sound
	for _, file := range files {
		env, _ := os.ReadFile(file) // it may have ended
		if slices.Contains(strings.Split(string(env), "\x00"), variable) {
			pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

func children(pid int) (pids []int) {
	lists, _ := filepath.Glob(proc(pid, "task/*/children")) // the pattern is sound
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread may have ended
		for _, field := range strings.Fields(string(text)) {
			child, _ := strconv.Atoi(field)
			pids = append(pids, child)
		}
	}
	return pids
}

func proc(pid int, file string) string { return fmt.Sprintf("/proc/%d/%s", pid, file) }
