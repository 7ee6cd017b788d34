package agent

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/bind"
	"github.com/golaunch/golaunch/internal/job"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

// TestAble has attempts that this node cannot start, each for another reason.
func TestAble(t *testing.T) {
	for name, c := range map[string]struct {
		args, env []string
		want      string
	}{
		"two ranks":           {nil, nil, ""},
		"one long argument":   {[]string{strings.Repeat("x", 128<<10)}, nil, "an argument or variable of the command has 131072 bytes, and the kernel takes 131071: \"xxx"},
		"one long variable":   {nil, []string{"X=" + strings.Repeat("x", 128<<10)}, "has 131074 bytes"},
		"many long variables": {nil, long(64), "a quarter of its stack (ulimit -s)"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &share{agent: &life{}, work: Work{Task: Task{Command: append([]string{"true"}, c.args...)}}}
			u := newUnit(s, job.Start{Group: placement.Group{Bundles: make([]placement.Bundle, 2)}, World: job.World{MasterAddr: "10.0.0.1"}})
			u.env, u.bindings = rankenv.Merge(rankenv.Layers{Inherited: c.env}), make([]bind.Binding, 2)
			err := u.able()
			if err == nil && c.want != "" || err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestFiles(t *testing.T) {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	u := &unit{share: &share{agent: &life{}}, agent: &life{}}
	if err := u.files(1); err != nil {
		t.Error(err)
	}
	if err := u.files(int(files.Cur)); err == nil || !strings.Contains(err.Error(), "raise the limit (ulimit -n;") {
		t.Error(err)
	}
}

// long are variables of 8 MiB together, which is more than the kernel takes with any stack.
func long(n int) (env []string) {
	for i := range n {
		env = append(env, strings.Repeat("X", i+1)+"="+strings.Repeat("x", 127<<10))
	}
	return env
}
