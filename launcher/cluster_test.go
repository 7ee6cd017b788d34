package launcher_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/clustertest"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// remote returns a job of n GPU ranks on one node that run a script.
func remote(n int, script string) (job launcher.Job, out *screen) {
	out = newScreen()
	return launcher.Job{
		Command: []string{"sh", "-c", script}, Resources: launcher.Resources{PerNode: []int{n}, GPU: true},
		Output: launcher.Output{Stdout: out, Stderr: out, Quiet: true, Prefix: new(bool)},
	}, out
}

func lines(text string) []string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(all)
	return all
}

func TestClusterRunsJobsSideBySide(t *testing.T) {
	c := clustertest.Start(t, 2, 2).Connect(t)
	first, _ := remote(2, "sleep 1000")
	first.Cluster.Detached, first.ID = true, "first"
	if _, err := c.Submit(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	second, out := remote(2, `echo $RANK on $GOLAUNCH_NODE`)
	if r, err := c.Run(t.Context(), second); err != nil || r.Code != 0 {
		t.Fatal(r, err)
	}
	if got, want := lines(out.String()), []string{"0 on n1", "1 on n1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	third, _ := remote(2, "true")
	third.Resources.MinNodes, third.Resources.MaxNodes = 2, 2
	third.Resources.PlacementTimeout = 200 * time.Millisecond
	r, err := c.Run(t.Context(), third)
	if err != nil || r.Code != 124 || !strings.Contains(r.Reason, "n0: 0 of 2 GPUs free, gpu0 held by job first") {
		t.Errorf("%+v, %v: want a timeout that says who holds the GPUs", r, err)
	}
	if _, err := c.Stop(t.Context(), "first", launcher.CodeStopped, "enough"); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Wait(t.Context(), "first"); err != nil || r.Code != launcher.CodeStopped {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestReservation(t *testing.T) {
	c := clustertest.Start(t, 4, 8, 2).Connect(t)
	r, err := c.Reserve(t.Context(), launcher.Job{Resources: launcher.Resources{MinNodes: 3, MaxNodes: 3, PerNode: []int{4, 8, 2}, GPU: true}}, 2)
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for _, g := range r.Plan.Groups {
		sizes = append(sizes, len(g.Bundles))
	}
	if !slices.Equal(sizes, []int{4, 8, 2}) {
		t.Fatalf("groups of %v bundles, want 4, 8 and 2", sizes)
	}
	outside, _ := remote(1, "true")
	outside.Resources.PlacementTimeout = 200 * time.Millisecond
	if got, err := c.Run(t.Context(), outside); err != nil || got.Code != 124 {
		t.Errorf("a job outside of the reservation ended with %+v, %v; want 124", got, err)
	}
	whole := launcher.Resources{MinNodes: 3, MaxNodes: 3, PerNode: []int{4, 8, 2}, GPU: true}
	train, _ := remote(1, "sleep 1000")
	train.Resources, train.Cluster.Detached, train.ID = whole, true, "train"
	if _, err := r.Submit(t.Context(), train); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the two jobs run one after another, on the GPUs that the job "train" uses too
		generate, out := remote(1, `echo $RANK/$WORLD_SIZE`)
		generate.Resources = whole
		if got, err := r.Run(t.Context(), generate); err != nil || got.Code != 0 || len(lines(out.String())) != 14 {
			t.Errorf("%+v, %v: %q", got, err, out.String())
		}
	}
	if err := r.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Job(t.Context(), "train"); err != nil || got.Result == nil {
		t.Errorf("a job of a released reservation: %+v, %v", got, err)
	}
	if got, err := c.Run(t.Context(), outside); err != nil || got.Code != 0 {
		t.Errorf("after the release: %+v, %v", got, err)
	}
}

// BenchmarkSecondRun runs jobs of 8 ranks on a reservation, from Go, on agents that already run.
func BenchmarkSecondRun(b *testing.B) {
	c := clustertest.Start(b, 8).Connect(b)
	r, err := c.Reserve(b.Context(), launcher.Job{Resources: launcher.Resources{PerNode: []int{8}, GPU: true}}, 1)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		job, _ := remote(8, "true")
		job.Command = []string{"true"}
		if got, err := r.Run(b.Context(), job); err != nil || got.Code != 0 {
			b.Fatal(got, err)
		}
	}
	if err := r.Release(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// TestAnAgentThatCannotRejoin: an agent that has lost its coordinator tries to join until its
// context ends, and then says that it gave up.
func TestAnAgentThatCannotRejoin(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	head, stopHead := context.WithCancel(t.Context())
	at, ended := make(chan netip.AddrPort, 1), make(chan error, 1)
	go func() {
		ended <- launcher.Coordinator{
			Listen: "127.0.0.1:0", Store: filepath.Join(dir, "store"), TokenFile: token, Lease: time.Second,
			Ready: func(a netip.AddrPort) { at <- a }, Warn: func(error) {},
		}.Serve(head)
	}()
	node, stopNode := context.WithCancel(t.Context())
	a := launcher.Agent{
		Coordinator: (<-at).String(), TokenFile: token, AllowRunAsRoot: true, GPUs: new(int), Name: "n0", LogDir: dir,
		Say: func(string) { stopHead() },
		Warn: func(err error) {
			if strings.Contains(err.Error(), "joins again") {
				stopNode()
			}
		},
	}
	if _, err := a.Serve(node); err == nil || !strings.Contains(err.Error(), "gave up joining") {
		t.Errorf("%v, want that it gave up joining", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestAFailureIsToldOnce restarts a job. A watcher gets only the first failure of each attempt,
// with the last output of the rank that failed.
func TestAFailureIsToldOnce(t *testing.T) {
	c := clustertest.Start(t, 2).Connect(t)
	j, _ := remote(2, "echo last words of $RANK >&2; exit $((RANK + 3))")
	j.Restarts.Max, j.ID = 1, "fails"
	w, err := c.Submit(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var told []report.Failure
	for {
		d, err := w.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if d.Failure != nil {
			told = append(told, *d.Failure)
		}
	}
	if len(told) != 2 {
		t.Fatalf("got %d failures, want one for each attempt: %+v", len(told), told)
	}
	for attempt, f := range told {
		words := fmt.Sprintf("last words of %d", f.Rank)
		if f.Node != "n0" || f.Attempt != attempt || f.Exit.Code != f.Rank+3 || f.Tail != words || f.Why == "" || f.At.IsZero() {
			t.Errorf("attempt %d: %+v", attempt, f)
		}
	}
}

// TestRemedies: errors about a coordinator say what to do.
func TestRemedies(t *testing.T) {
	t.Setenv("GOLAUNCH_TOKEN", "a token of this test that is long enough")
	dir := t.TempDir()
	_, err := launcher.Connect(t.Context(), "127.0.0.1:1", "")
	if err == nil || !strings.Contains(err.Error(), "refused; start one there (golaunch coordinator), or name another (--coordinator HOST:PORT)") {
		t.Error(err)
	}
	err = launcher.Coordinator{Capacity: filepath.Join(dir, "none.yaml"), Store: dir}.GiveBack(t.Context())
	if !errors.Is(err, launcher.ErrUsage) || !strings.Contains(err.Error(), "no such file or directory; name a YAML file") {
		t.Error(err)
	}
	file := filepath.Join(dir, "capacity.yaml")
	if err := os.WriteFile(file, []byte("kinds: {toy: {max: 1, exec: ['true']}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err = launcher.Coordinator{Capacity: file, Store: dir}.GiveBack(t.Context())
	if !errors.Is(err, launcher.ErrUsage) || !strings.Contains(err.Error(), dir+" has no log of a coordinator: name the directory") {
		t.Error(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "raft"), 0o700), os.WriteFile(filepath.Join(dir, "raft", "log"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	err = launcher.Coordinator{Capacity: file, Store: dir}.GiveBack(t.Context())
	if !errors.Is(err, launcher.ErrUsage) || !strings.Contains(err.Error(), "coordinators with peers give nodes back themselves") {
		t.Error(err)
	}
}

// TestACoordinatorThatDoesNotStart: it says that it listens only if it serves, because golaunch up
// and systemd rely on that.
func TestACoordinatorThatDoesNotStart(t *testing.T) {
	t.Setenv("GOLAUNCH_TOKEN", "a token of this test that is long enough")
	dir := t.TempDir()
	file := filepath.Join(dir, "capacity.yaml")
	if err := os.WriteFile(file, []byte("kinds: {pods: {max: 1, kubernetes: ["+dir+"/none.yaml]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := launcher.Coordinator{
		Listen: "127.0.0.1:0", Store: filepath.Join(dir, "state"), Capacity: file,
		Ready: func(netip.AddrPort) { t.Error("it says that it listens") },
	}.Serve(t.Context())
	if !errors.Is(err, launcher.ErrUsage) || !strings.Contains(err.Error(), "none.yaml: no such file or directory") {
		t.Error(err)
	}
}
