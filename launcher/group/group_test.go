package group_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/clustertest"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/group"
	"github.com/golaunch/golaunch/rankenv"
)

// workerVar makes this program a worker of a group.
const workerVar = "GROUP_TEST_WORKER"

// afarVar makes a worker connect as if it were on another machine than the controller.
const afarVar = "GROUP_TEST_AFAR"

// lateVar makes rank 0 connect to the controller only after it has got a stop signal. The variable
// names a socket to which the rank connects when it is ready for that signal.
const lateVar = "GROUP_TEST_LATE"

// nth counts calls in a worker.
var nth atomic.Int64

// beWorker is the main function of a worker.
func beWorker() int {
	if os.Getenv(afarVar) != "" {
		os.Unsetenv("GOLAUNCH_CONTROLLER")
	}
	me, err := rankenv.Current()
	if err == nil && os.Getenv(lateVar) != "" && me.Rank == 0 && me.Attempt == 0 {
		stopped := make(chan os.Signal, 1)
		signal.Notify(stopped, syscall.SIGTERM)
		if _, err = net.Dial("unix", os.Getenv(lateVar)); err == nil {
			<-stopped
		}
	}
	if err == nil {
		handlers := map[string]rankenv.Handler{
			"rank": func(context.Context, []byte) ([]byte, error) {
				return fmt.Appendf(nil, "%d of %d", me.Rank, me.WorldSize), nil
			},
			"echo": func(_ context.Context, in []byte) ([]byte, error) { return in, nil },
			"sum": func(_ context.Context, in []byte) ([]byte, error) {
				sum := sha256.Sum256(in)
				return sum[:], nil
			},
			"double": func(_ context.Context, in []byte) ([]byte, error) {
				var n int
				if err := json.Unmarshal(in, &n); err != nil {
					return nil, err
				}
				return json.Marshal(2 * n)
			},
			"fail":  func(context.Context, []byte) ([]byte, error) { return nil, fmt.Errorf("rank %d cannot", me.Rank) },
			"panic": func(context.Context, []byte) ([]byte, error) { panic("no way") },
			"die": func(_ context.Context, in []byte) ([]byte, error) {
				if string(in) == fmt.Sprint(me.Rank) {
					fmt.Fprintln(os.Stderr, "my last words")
					_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				}
				select {}
			},
			"leave": func(_ context.Context, in []byte) ([]byte, error) {
				if string(in) == fmt.Sprint(me.Rank) {
					os.Exit(0)
				}
				return nil, nil
			},
			"wait": func(ctx context.Context, _ []byte) ([]byte, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
			"hang": func(_ context.Context, socket []byte) ([]byte, error) {
				if _, err := net.Dial("unix", string(socket)); err != nil {
					return nil, err
				}
				for { // without an end; the runtime ends a program in which all goroutines are blocked
					time.Sleep(time.Hour)
				}
			},
			"hold": func(_ context.Context, socket []byte) ([]byte, error) {
				conn, err := net.Dial("unix", string(socket))
				if err == nil {
					_, _ = conn.Read(make([]byte, 1)) // until the other end closes the connection
				}
				return []byte("held"), err
			},
			"nth":     func(context.Context, []byte) ([]byte, error) { return fmt.Append(nil, nth.Add(1)), nil },
			"pid":     func(context.Context, []byte) ([]byte, error) { return fmt.Append(nil, os.Getpid()), nil },
			"attempt": func(context.Context, []byte) ([]byte, error) { return fmt.Appendf(nil, "%d", me.Attempt), nil },
			"gpu":     func(context.Context, []byte) ([]byte, error) { return []byte(me.GPUUUID), nil },
		}
		if os.Getenv(turnerVar) != "" {
			maps.Copy(handlers, turnerHandlers(me))
		}
		err = me.Serve(context.Background(), handlers)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// startGroup starts a group with two workers on one node and one worker on another.
func startGroup(t *testing.T, j launcher.Job) *group.Group {
	t.Helper()
	c := clustertest.Start(t, 2, 1).Connect(t)
	where := launcher.Resources{MinNodes: 2, MaxNodes: 2, PerNode: []int{2, 1}, GPU: true}
	r, err := group.Reserve(t.Context(), c, launcher.Job{Resources: where}, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Release(context.Background()); err != nil {
			t.Error(err)
		}
	})
	j.Command, j.Resources, j.Env = []string{os.Args[0]}, where, append(j.Env, workerVar+"=1", "GORACE=atexit_sleep_ms=0")
	g, err := r.Group(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = g.Close() })
	return g
}

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestAGroupAfar: input for all workers crosses the network once for each of the two nodes.
func TestAGroupAfar(t *testing.T) {
	g := startGroup(t, launcher.Job{Env: []string{afarVar + "=1"}})
	ctx := limited(t)
	if _, err := g.CallAll(ctx, "rank", nil); err != nil { // all workers have connected
		t.Fatal(err)
	}
	for i := range 2 {
		large := bytes.Repeat([]byte{byte(i), 1, 2, 3}, 4<<20)
		before, want := sent(t), sha256.Sum256(large)
		all, err := g.CallAll(ctx, "sum", large)
		if err != nil || len(all) != 3 {
			t.Fatal(all, err)
		}
		for rank, got := range all {
			if !bytes.Equal(got, want[:]) {
				t.Errorf("worker %d has got something else", rank)
			}
		}
		if n := sent(t) - before; n < 2*len(large) || n > 2*len(large)*11/10 {
			t.Errorf("%d bytes to three workers on two nodes took %d over the network", len(large), n)
		}
	}
	large := bytes.Repeat([]byte{9}, 1<<20)
	if out, err := g.Call(ctx, 1, "echo", large); err != nil || !bytes.Equal(out, large) {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

// sent is how many bytes this process has sent on its present TCP connections.
func sent(t *testing.T) (total int) {
	t.Helper()
	out, err := exec.Command("ss", "-tinpHO").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		_, counted, _ := strings.Cut(line, "bytes_sent:")
		if n := 0; strings.Contains(line, fmt.Sprintf("pid=%d,", os.Getpid())) && counted != "" {
			if _, err := fmt.Sscan(counted, &n); err != nil {
				t.Fatal(err)
			}
			total += n
		}
	}
	return total
}

func TestGroup(t *testing.T) {
	g := startGroup(t, launcher.Job{})
	ctx := limited(t)
	all, err := g.CallAll(ctx, "rank", nil)
	if err != nil {
		t.Fatal(err)
	}
	for rank, text := range all {
		if want := fmt.Sprintf("%d of 3", rank); string(text) != want {
			t.Errorf("%s, want %s", text, want)
		}
	}
	large := make([]byte, 8<<20)
	if out, err := g.Call(ctx, 2, "echo", large); err != nil || len(out) != len(large) {
		t.Errorf("%d bytes, %v", len(out), err)
	}
	var got []int
	for a := range g.CallEach(ctx, "double", [][]byte{[]byte("1"), []byte("2"), []byte("3")}) {
		var n int
		if err := errors.Join(a.Err, json.Unmarshal(a.Out, &n)); err != nil || n != 2*(a.Rank+1) {
			t.Errorf("%+v: %v", a, err)
		}
		got = append(got, a.Rank)
	}
	if slices.Sort(got); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("answers of %v", got)
	}
	for a := range g.CallEach(ctx, "double", nil) {
		if !errors.Is(a.Err, launcher.ErrUsage) {
			t.Errorf("%+v, want that there is one input for each worker", a)
		}
	}
	if _, err := g.Call(ctx, 3, "rank", nil); !errors.Is(err, launcher.ErrUsage) {
		t.Errorf("%v, want that there is no such worker", err)
	}
	unread, err := syscall.Mmap(-1, 0, 4<<30+1, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(unread) }()
	for _, too := range []struct {
		method string
		in     []byte
	}{{strings.Repeat("n", 257), nil}, {"echo", unread}} {
		if _, err := g.Call(ctx, 1, too.method, too.in); !errors.Is(err, launcher.ErrUsage) {
			t.Errorf("%v, want that it is too long", err)
		}
	}
	for method, want := range map[string]string{"fail": "rank 1 cannot", "panic": "panic: no way", "nothing": `no handler is called "nothing"`} {
		_, err := g.Call(ctx, 1, method, nil)
		failed, ok := errors.AsType[*group.WorkerError](err)
		if !ok || failed.Rank != 1 || failed.Node == "" || failed.Message != want || failed.Failure != nil {
			t.Errorf("%s: %+v", method, err)
		}
		if method == "panic" && !strings.Contains(failed.Stack, "group_test.go") {
			t.Errorf("no stack: %q", failed.Stack)
		}
	}
	soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := g.CallAll(soon, "wait", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want that its time is over", err)
	}
	if out, err := g.CallAll(ctx, "attempt", nil); err != nil || string(out[0]) != "0" {
		t.Errorf("%q, %v", out, err)
	}
	result, err := g.Close()
	if err != nil || result.Code != 0 {
		t.Errorf("%+v, %v", result, err)
	}
	if _, err := g.Call(ctx, 0, "rank", nil); err == nil {
		t.Error("a group that has ended answers")
	}
}

// TestAWorkerOfAGroupDies: all callers get an error with the worker's last output, and the group
// starts again.
func TestAWorkerOfAGroupDies(t *testing.T) {
	j := launcher.Job{}
	j.Restarts.Max = 1
	g := startGroup(t, j)
	ctx := limited(t)
	_, err := g.CallAll(ctx, "die", []byte("1"))
	failed, ok := errors.AsType[*group.WorkerError](err)
	if !ok {
		t.Fatalf("%v, want how a worker failed", err)
	}
	if f := failed.Failure; f == nil || f.Rank != 1 || f.Exit.Signal != 9 || f.Tail != "my last words" || f.Verdict.Cause != "killed" {
		t.Errorf("%+v", f)
	}
	if out, err := g.CallAll(ctx, "attempt", nil); err != nil || string(slices.Concat(out...)) != "111" {
		t.Errorf("%q, %v, want another attempt of each", out, err)
	}
	if _, err := g.CallAll(ctx, "die", []byte("2")); err == nil {
		t.Error("dead workers answer")
	}
	for {
		if _, err = g.Call(ctx, 0, "rank", nil); err != nil && strings.Contains(err.Error(), "the group has ended") {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("%v, want that the group has ended", err)
		}
	}
}

// TestAWorkerOfAGroupLeaves: if a worker exits with 0, pending and later calls of the worker fail
// with that exit, and the other workers go on.
func TestAWorkerOfAGroupLeaves(t *testing.T) {
	for name, env := range map[string][]string{"here": nil, "afar": {afarVar + "=1"}} {
		t.Run(name, func(t *testing.T) {
			g := startGroup(t, launcher.Job{Env: env})
			ctx := limited(t)
			if _, err := g.CallAll(ctx, "rank", nil); err != nil {
				t.Fatal(err)
			}
			for _, method := range []string{"leave", "rank"} {
				_, err := g.Call(ctx, 1, method, []byte("1"))
				failed, ok := errors.AsType[*group.WorkerError](err)
				if !ok || failed.Failure == nil || failed.Failure.Rank != 1 || failed.Failure.Exit.Code != 0 || !strings.Contains(err.Error(), "exited with code 0: it is not started again") {
					t.Fatalf("%s: %v, want that the worker has left", method, err)
				}
			}
			for _, rank := range []int{0, 2} {
				if out, err := g.Call(ctx, rank, "attempt", nil); err != nil || string(out) != "0" {
					t.Errorf("worker %d: %q, %v", rank, out, err)
				}
			}
			if result, err := g.Close(); err != nil || result.Code != 0 {
				t.Errorf("%+v, %v", result, err)
			}
		})
	}
}

// TestAWorkerThatComesLate: a worker of a failed attempt is not called, since it is about to be
// stopped.
func TestAWorkerThatComesLate(t *testing.T) {
	ready := meeting(t)
	j := launcher.Job{Env: []string{lateVar + "=" + ready.Addr().String()}}
	j.Restarts.Max = 1
	g := startGroup(t, j)
	ctx := limited(t)
	if _, err := ready.Accept(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Call(ctx, 1, "die", []byte("1")); err == nil {
		t.Fatal("a dead worker answers")
	}
	if out, err := g.CallAll(ctx, "attempt", nil); err != nil || string(slices.Concat(out...)) != "111" {
		t.Errorf("%q, %v, want another attempt of each", out, err)
	}
}

// TestAWorkerThatStandsStill: calls to a worker that does not read end at their limit. Calls to
// other workers do not wait for it. The worker can answer calls again later.
func TestAWorkerThatStandsStill(t *testing.T) {
	for name, env := range map[string][]string{"here": nil, "afar": {afarVar + "=1"}} {
		t.Run(name, func(t *testing.T) {
			g := startGroup(t, launcher.Job{Env: env})
			ctx := limited(t)
			out, err := g.Call(ctx, 1, "pid", nil)
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(string(out))
			if err == nil {
				err = syscall.Kill(pid, syscall.SIGSTOP)
			}
			if err != nil {
				t.Fatal(err)
			}
			soon := func() context.Context {
				ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				t.Cleanup(cancel)
				return ctx
			}
			for _, in := range [][]byte{make([]byte, 32<<20), nil} { // the first is larger than all buffers between the two processes
				if _, err := g.Call(soon(), 1, "sum", in); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%d bytes: %v, want that the time is over", len(in), err)
				}
			}
			if _, err := g.CallAll(soon(), "sum", make([]byte, 32<<20)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, want that the time is over", err)
			}
			if out, err := g.Call(ctx, 0, "attempt", nil); err != nil || string(out) != "0" {
				t.Errorf("%q, %v", out, err)
			}
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if out, err := g.CallAll(ctx, "attempt", nil); err != nil || string(slices.Concat(out...)) != "000" {
				t.Errorf("%q, %v", out, err)
			}
			if result, err := g.Close(); err != nil || result.Code != 0 {
				t.Errorf("%+v, %v", result, err)
			}
		})
	}
}

// TestAGroupIsClosed closes a group before its workers have connected. The workers end in order.
func TestAGroupIsClosed(t *testing.T) {
	for _, env := range [][]string{nil, {afarVar + "=1"}} {
		if result, err := startGroup(t, launcher.Job{Env: env}).Close(); err != nil || result.Code != 0 {
			t.Errorf("%+v, %v", result, err)
		}
	}
}

// meeting returns a socket to which a worker connects when it reaches a point in its program.
func meeting(t *testing.T) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := l.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return l
}

// hang puts a worker into a call that does not end.
func hang(t *testing.T, g *group.Group, rank int) {
	t.Helper()
	socket := meeting(t)
	ctx, cancel := context.WithCancel(limited(t))
	called := make(chan error, 1)
	go func() {
		_, err := g.Call(ctx, rank, "hang", []byte(socket.Addr().String()))
		socket.Close()
		called <- err
	}()
	if _, err := socket.Accept(); err != nil {
		t.Fatal(err, <-called)
	}
	cancel()
	if err := <-called; !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want that it is cancelled", err)
	}
}

// TestAGroupWhoseWorkersDoNotEnd: Close stops the job of a group whose workers do not end in order.
func TestAGroupWhoseWorkersDoNotEnd(t *testing.T) {
	g := startGroup(t, launcher.Job{})
	hang(t, g, 1)
	g.EndWithin(time.Second)
	if result, err := g.Close(); err != nil || result.Code != launcher.CodeStopped || !strings.HasSuffix(result.Reason, "the group was closed, and workers did not end within 1s") {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestServeAlone(t *testing.T) {
	t.Setenv("GOLAUNCH_CONTROLLER", "")
	t.Setenv("GOLAUNCH_ENDPOINT", "")
	if err := (rankenv.Info{}).Serve(t.Context(), nil); !errors.Is(err, rankenv.ErrNoController) {
		t.Errorf("%v, want that there is no controller", err)
	}
}
