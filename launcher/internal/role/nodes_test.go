package role

import (
	"slices"
	"testing"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// newRoster returns a roster that keeps its output.
func newRoster(wanted int) (r *roster, printed func() []string) {
	var lines []string
	r = Nodes{Wanted: wanted}.roster(func(err error) { lines = append(lines, err.Error()) })
	return r, func() []string {
		defer func() { lines = nil }()
		return lines
	}
}

func nodeWith(name string, labels ...string) placement.Node {
	n := placement.Node{Name: name, Labels: map[string]string{}}
	for i := 0; i < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	return n
}

func TestRoster(t *testing.T) {
	const (
		broken = " is broken; replace the GPU [gpu-row-remap]"
		kernel = "kernel: n1 1; n2 2; boot one kernel [kernel-skew]"
	)
	r, printed := newRoster(3)
	bad := []string{"health.gpu-row-remap", "it is broken", "version.kernel", "1"}
	r.joined(nodeWith("n1", bad...))
	r.joined(nodeWith("n2", "health.gpu-row-remap", "it is broken", "version.kernel", "2"))
	r.decided(job.Joined{})
	if got := printed(); got != nil {
		t.Errorf("before all are there: %q", got)
	}
	r.decided(job.Started{})
	if got, want := printed(), []string{"n[1-2]: it" + broken, kernel}; !slices.Equal(got, want) {
		t.Errorf("at the start: got %q, want %q", got, want)
	}
	r.joined(nodeWith("n1", bad...))
	r.print()
	if got := printed(); got != nil {
		t.Errorf("a node that is back: %q", got)
	}
	r.joined(nodeWith("n3", "health.gpu-row-remap", "mine is broken", "version.kernel", "2"))
	want := []string{"n3: mine" + broken, "kernel: 2 nodes 2; n1 1; boot one kernel [kernel-skew]"}
	if got := printed(); !slices.Equal(got, want) {
		t.Errorf("the last node: got %q, want %q", got, want)
	}
	r.print()
	if got := printed(); got != nil {
		t.Errorf("twice: %q", got)
	}
}

func TestRosterRefuses(t *testing.T) {
	r, _ := newRoster(2)
	var why []string
	r.refuse = func(text string) { why = append(why, text) }
	r.joined(nodeWith("n1", "health.nofile", "only 3 files"))
	r.joined(nodeWith("n2", "health.nofile", "only 3 files", "health.gpu-row-remap", "it is broken", placement.UnfitLabel, "gpu-row-remap"))
	r.joined(nodeWith("n3", placement.UnfitLabel, "of-the-future"))
	if want := []string{"n2: it is broken; replace the GPU [gpu-row-remap]", "n3 is unfit: of-the-future"}; !slices.Equal(why, want) {
		t.Errorf("got %q, want %q", why, want)
	}
}
