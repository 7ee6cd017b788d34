package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/agent/internal/keeper"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/host/bind"
	"github.com/golaunch/golaunch/internal/host/topology"
	"github.com/golaunch/golaunch/internal/testkit/topotest"
	"github.com/golaunch/golaunch/placement"
)

// These are the CPUs 0 and 1 of the machine that runs the tests, as two NUMA nodes with a GPU each,
// and as the threads of one core.
var (
	twoNodes = topotest.Machine{Nodes: 2, CoresPerNode: 1, Threads: 1, NodesPerSocket: 1, GPUs: []int{0, 1}}
	oneCore  = topotest.Machine{Nodes: 1, CoresPerNode: 1, Threads: 2, NodesPerSocket: 1}
)

// where makes each rank write the CPUs that the kernel lets it use, and the variables of its
// environment about CPUs.
const where = `echo $GOLAUNCH_ATTEMPT.$RANK $(sed -n 's/Cpus_allowed_list:\t//p' /proc/self/status) \
${GOLAUNCH_CPUS-none} ${OMP_NUM_THREADS-none} >>where`

// node returns the node of a machine.
func node(m topotest.Machine) placement.Node {
	n := local
	for i := range m.GPUs {
		n.GPUs = append(n.GPUs, placement.GPU{Index: i, PCI: topotest.GPU(i)})
	}
	return n
}

// binding returns a node that obeys orders on a machine with a policy, and the warnings as they
// arrive.
func binding(t *testing.T, m topotest.Machine, policy bind.Policy) (*world, *[]error) {
	t.Helper()
	w := obeyingOn(t, node(m), where)
	w.hooks.sys = m.Sys()
	w.jobs["test"].work.Task.Bind = policy
	warned := &[]error{}
	w.Warn = func(err error) { *warned = append(*warned, err) }
	return w, warned
}

// withGPUs returns an attempt whose two ranks have the GPUs with these indexes. Like the
// coordinator, it does not tell the PCI addresses of the GPUs.
func withGPUs(n int, indexes ...int) job.Start {
	o := startOf(n)
	for i, index := range indexes {
		o.World.GPUs = append(o.World.GPUs, placement.GPU{Index: index})
		o.Group.Bundles[i].GPU = &o.World.GPUs[i]
	}
	return o
}

func (w *world) wrote(t *testing.T) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(w.file(t, "where")), "\n")
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

func TestRanksRunNearTheirGPUs(t *testing.T) {
	all := topology.Topology{}
	all.Use, _ = topology.Self()
	for _, test := range []struct {
		name    string
		machine topotest.Machine
		policy  bind.Policy
		start   job.Start
		want    string
	}{
		{"auto", twoNodes, bind.Auto, withGPUs(0, 1, 0), "0.0 1 1 1, 0.1 0 0 1"},
		{"core", twoNodes, bind.Core, withGPUs(0, 0, 1), "0.0 0 0 1, 0.1 1 1 1"},
		{"core, a shared GPU", twoNodes, bind.Core, withGPUs(0, 1, 1), "0.0 1 1 1, 0.1 1 1 1"},
		{"auto, GPUs of one node", twoNodes, bind.Auto, withGPUs(0, 1, 1), "0.0 ALL none 1, 0.1 ALL none 1"},
		{"auto, no GPUs", twoNodes, bind.Auto, startOf(0), "0.0 ALL none 1, 0.1 ALL none 1"},
		{"numa, no GPUs", twoNodes, bind.NUMA, startOf(0), "0.0 0 0 1, 0.1 1 1 1"},
		{"none", twoNodes, bind.None, withGPUs(0, 0, 1), "0.0 ALL none 1, 0.1 ALL none 1"},
		{"no policy", twoNodes, "", withGPUs(0, 0, 1), "0.0 ALL none 1, 0.1 ALL none 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, warned := binding(t, test.machine, test.policy)
			w.order(test.start)
			w.quiet()
			want := strings.ReplaceAll(test.want, "ALL", all.CPUs.String())
			if got := w.wrote(t); got != want || len(*warned) > 0 {
				t.Errorf("got %s, want %s; warnings %v", got, want, *warned)
			}
		})
	}
}

// TestARestartedRankKeepsItsCPUs restarts one of two ranks, as a unit of its own.
func TestARestartedRankKeepsItsCPUs(t *testing.T) {
	w, _ := binding(t, twoNodes, bind.Core)
	for n := range 3 {
		o := startOf(n)
		if n > 0 {
			o.Unit, o.Group.Bundles = 1, o.Group.Bundles[1:]
		}
		w.order(o)
		w.quiet()
	}
	if got, want := w.wrote(t), "0.0 0 0 1, 0.1 1 1 1, 1.1 1 1 1, 2.1 1 1 1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestJobsOfAClusterLeaveRoom checks that ranks on one of two GPUs get their own CPUs, and leave
// the other CPUs for a job on the other GPU.
func TestJobsOfAClusterLeaveRoom(t *testing.T) {
	m := topotest.Machine{Nodes: 1, CoresPerNode: 2, Threads: 1, NodesPerSocket: 1, GPUs: []int{0, 0}}
	for session, want := range map[string]string{"": "0.0 1 1 1", "test": "0.0 0-1 0-1 2"} {
		w, warned := binding(t, m, bind.Core)
		w.session.Job = session
		o := withGPUs(0, 1)
		o.World.LocalSize, o.Group.Bundles = 1, o.Group.Bundles[:1]
		w.order(o)
		w.quiet()
		if got := w.wrote(t); got != want || len(*warned) > 0 {
			t.Errorf("in session %q: got %s, want %s; warnings %v", session, got, want, *warned)
		}
	}
}

func TestAWarningIsPrintedOnce(t *testing.T) {
	w, warned := binding(t, oneCore, bind.Core)
	w.order(startOf(0))
	w.order(startOf(1))
	w.quiet()
	if got, want := fmt.Sprint(*warned), "[n1: NUMA node 0 has fewer cores (1) than ranks (2), which share them (bind/shared-cores)]"; got != want {
		t.Errorf("warned of %s, want %s", got, want)
	}
	if got := w.wrote(t); !strings.Contains(got, "1.0 0-1 0-1 1, 1.1 0-1 0-1 1") {
		t.Errorf("the ranks have %s", got)
	}
}

func TestStrictStartsNothing(t *testing.T) {
	w := newWorldOn(t, node(oneCore), job.Spec{MaxRestarts: 3}, where)
	w.hooks.sys = oneCore.Sys()
	w.work.Task.Bind, w.work.Task.Strict = bind.Core, true
	result, err := w.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const want = "n1: cannot bind ranks as --bind core says: NUMA node 0 has fewer cores (1) than ranks (2), which share them (bind/shared-cores)"
	if result.Code != 125 || result.Attempts != 1 || !strings.Contains(result.Reason, want) {
		t.Errorf("%+v, want code 125, one attempt and %q", result, want)
	}
	if got := w.file(t, "where"); got != "" {
		t.Errorf("ranks ran: %s", got)
	}
}

// TestFormerRanksNeedNoBinding adopts ranks on a machine where ranks that start could not be bound.
func TestFormerRanksNeedNoBinding(t *testing.T) {
	w, _ := binding(t, oneCore, bind.Core)
	w.jobs["test"].work.Task.Strict = true
	a := newAttempt(w.jobs["test"], startOf(0))
	a.former = map[int]keeper.Rank{0: {}}
	if a.setUp(); a.setup.err == nil {
		t.Error("a rank starts that cannot be bound")
	}
	a.former[1] = keeper.Rank{}
	if a.setUp(); a.setup.err != nil {
		t.Fatalf("ranks that run cannot be adopted: %v", a.setup.err)
	}
	if c := a.command(a.order.Group.Bundles[1], nil); len(c.CPUs) != 0 {
		t.Errorf("bound to CPUs %v", c.CPUs)
	}
}

func TestAGPUThatIsNotThere(t *testing.T) {
	w, _ := binding(t, twoNodes, bind.Core)
	w.session.Job = ""
	_, err := w.jobs["test"].bind(withGPUs(0, 0, 7).World)
	if err == nil || !strings.Contains(err.Error(), "n1 has no GPU 7") {
		t.Errorf("bound to a GPU of another machine: %v", err)
	}
}

// TestRanksPreferTheirNodesMemory has a machine whose second node has no usable memory. The kernel
// then decides where the ranks of that node get memory.
func TestRanksPreferTheirNodesMemory(t *testing.T) {
	w, _ := binding(t, twoNodes, bind.Core)
	w.jobs["test"].work.Task.Command = []string{"sh", "-c", `echo $RANK $(cut -d ' ' -f 2 /proc/self/numa_maps | sort -u) >>where`}
	w.order(withGPUs(0, 0, 1))
	w.quiet()
	if got, want := w.wrote(t), "0 prefer:0, 1 default"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
