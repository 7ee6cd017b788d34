package launcher

import (
	"slices"
	"testing"

	"github.com/golaunch/golaunch/internal/wire"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// newRoster is a roster that keeps what it tells.
func newRoster(wanted int) (m *roster, told func() []string) {
	var lines []string
	m = &roster{wanted: wanted, nodes: map[string]map[string]string{}, said: map[string]bool{}, warn: func(err error) {
		lines = append(lines, err.Error())
	}}
	return m, func() []string {
		defer func() { lines = nil }()
		return lines
	}
}

func comes(name string, labels ...string) placement.Node {
	n := placement.Node{Name: name, Labels: map[string]string{}}
	for i := 0; i < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	return n
}

func TestMuster(t *testing.T) {
	const (
		broken = " is broken; have the GPU replaced [gpu-row-remap]"
		kernel = "kernel: n1 1; n2 2; boot one kernel [kernel-skew]"
	)
	m, told := newRoster(3)
	bad := []string{"health.gpu-row-remap", "it is broken", "version.kernel", "1"}
	m.joined(comes("n1", bad...))
	m.joined(comes("n2", "health.gpu-row-remap", "it is broken", "version.kernel", "2"))
	m.decided(wire.Decision{Event: job.Joined{}})
	if got := told(); got != nil {
		t.Errorf("before all are there: %q", got)
	}
	m.decided(wire.Decision{Event: job.Started{}})
	if got, want := told(), []string{"n[1-2]: it" + broken, kernel}; !slices.Equal(got, want) {
		t.Errorf("at the start: got %q, want %q", got, want)
	}
	m.joined(comes("n1", bad...))
	m.tell()
	if got := told(); got != nil {
		t.Errorf("a node that is back: %q", got)
	}
	m.joined(comes("n3", "health.gpu-row-remap", "mine is broken", "version.kernel", "2"))
	want := []string{"n3: mine" + broken, "kernel: 2 nodes 2; n1 1; boot one kernel [kernel-skew]"}
	if got := told(); !slices.Equal(got, want) {
		t.Errorf("the last node: got %q, want %q", got, want)
	}
	m.tell()
	if got := told(); got != nil {
		t.Errorf("twice: %q", got)
	}
}

func TestMusterRefuses(t *testing.T) {
	m, _ := newRoster(2)
	var why []string
	m.refuse = func(text string) { why = append(why, text) }
	m.joined(comes("n1", "health.nofile", "only 3 files"))
	m.joined(comes("n2", "health.nofile", "only 3 files", "health.gpu-row-remap", "it is broken", placement.UnfitLabel, "gpu-row-remap"))
	m.joined(comes("n3", placement.UnfitLabel, "of-the-future"))
	if want := []string{"n2: it is broken; have the GPU replaced [gpu-row-remap]", "n3 is unfit: of-the-future"}; !slices.Equal(why, want) {
		t.Errorf("got %q, want %q", why, want)
	}
}
