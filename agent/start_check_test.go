package agent

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/agent/internal/startcheck"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

// TestUnable tries attempts that this node cannot start, each for another reason.
func TestUnable(t *testing.T) {
	for name, c := range map[string]struct {
		command, env []string
		want         string
		code         int
	}{
		"two ranks":           {[]string{"true"}, nil, "", 0},
		"one long argument":   {[]string{"true", strings.Repeat("x", 128<<10)}, nil, "an argument or variable of the command has 131072 bytes, and the kernel takes 131071: \"xxx", 125},
		"one long variable":   {[]string{"true"}, []string{"X=" + strings.Repeat("x", 128<<10)}, "has 131074 bytes", 125},
		"many long variables": {[]string{"true"}, long(64), "a quarter of its stack (ulimit -s)", 125},
		"no command":          {[]string{"no-such-command"}, nil, "not found in the PATH", 127},
		"no file":             {[]string{"./train.py"}, nil, "no such file", 127},
		"no program":          {[]string{"/etc/passwd"}, nil, "is it executable (chmod +x)", 126},
		"a directory":         {[]string{"/etc"}, nil, "it is a directory", 126},
	} {
		t.Run(name, func(t *testing.T) {
			s := &jobOnNode{node: &membership{}, opened: opened{work: Work{Task: Task{Command: c.command, Dir: t.TempDir(), Env: rankenv.Merge(rankenv.Layers{Inherited: c.env})}}}}
			got := s.unable(2)
			if got.OK() {
				got = s.checkCommand().Wait(t.Context())
			}
			if got.Code != c.code || !strings.Contains(got.Spawn, c.want) || c.want == "" && !got.OK() {
				t.Errorf("%+v, want %d: %q", got, c.code, c.want)
			}
		})
	}
}

func TestCheckFiles(t *testing.T) {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	s := &jobOnNode{node: &membership{}}
	if err := s.checkFiles(1); err != nil {
		t.Error(err)
	}
	if err := s.checkFiles(int(files.Cur)); err == nil || !strings.Contains(err.Error(), "raise the limit (ulimit -n;") {
		t.Error(err)
	}
}

// TestUnableWithLivingRanks checks that the node needs free files only for ranks beyond those that
// live. It needs none if the coordinator asks for no more ranks than live.
func TestUnableWithLivingRanks(t *testing.T) {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	// There are enough files for a few more ranks, but not for 100 more.
	least := files
	least.Cur = uint64(len(open) + startcheck.FilesAtStart + 5*startcheck.FilesPerRank)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &least); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
			t.Error(err)
		}
	}()
	s := &jobOnNode{node: &membership{}, opened: opened{work: Work{Task: Task{Command: []string{"true"}, Env: rankenv.Merge(rankenv.Layers{})}}}}
	live, gone := newAttempt(s, startOf(0)), newAttempt(s, startOf(0))
	live.order.Group.Bundles = make([]placement.Bundle, 1000)
	close(gone.gone)
	s.attempts = map[int]*attempt{0: live, 1: gone}
	for ranks, want := range map[int]bool{1001: true, 1100: false, 1000: true, 2: true, 0: true, -1: true} {
		if got := s.unable(ranks); got.OK() != want {
			t.Errorf("%d ranks: %+v", ranks, got)
		}
	}
}

// long returns variables of 8 MiB together, more than the kernel takes with any stack.
func long(n int) (env []string) {
	for i := range n {
		env = append(env, strings.Repeat("X", i+1)+"="+strings.Repeat("x", 127<<10))
	}
	return env
}
