package group_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/clustertest"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/group"
	"github.com/golaunch/golaunch/rankenv"
)

// Variables of a worker that writes its orders to the file LOG. The order that FAILS names fails
// until a file LOG.well exists. The order that SLOW names waits until the pipe LOG.go is closed. The
// order that DIES names ends the worker in its first attempt. HELD is the directory of a simulated
// driver, where KEEPS and TAKES are amounts in bytes.
const (
	turnerVar = "TURNER"
	logVar    = "TURNER_LOG"
	failsVar  = "TURNER_FAILS"
	slowVar   = "TURNER_SLOW"
	diesVar   = "TURNER_DIES"
	heldVar   = "TURNER_HELD"
	keepsVar  = "TURNER_KEEPS"
	takesVar  = "TURNER_TAKES"
)

// turnerHandlers returns the handlers of a worker that obeys these variables.
func turnerHandlers(me rankenv.Info) map[string]rankenv.Handler {
	log := os.Getenv(logVar)
	say := func(ctx context.Context, word string) error {
		if me.Rank == 0 {
			f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				return err
			}
			defer f.Close()
			fmt.Fprintf(f, "%s %s\n", os.Getenv(turnerVar), word)
		}
		exists := func(suffix string) bool {
			_, err := os.Stat(log + suffix)
			return err == nil
		}
		if os.Getenv(diesVar) == word && me.Rank == 0 && me.Attempt == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		if os.Getenv(failsVar) == word && me.Rank == 0 && !exists(".well") {
			return fmt.Errorf("it cannot %s", word)
		}
		if os.Getenv(slowVar) == word && me.Rank == 0 {
			opened := make(chan error, 1)
			go func() {
				_, err := os.ReadFile(log + ".go")
				opened <- err
			}()
			select {
			case err := <-opened:
				return err
			case <-ctx.Done():
			}
		}
		return ctx.Err()
	}
	hold := func(bytes string) error {
		if os.Getenv(heldVar) == "" {
			return nil
		}
		at := filepath.Join(os.Getenv(heldVar), me.GPUUUID, strconv.Itoa(os.Getpid()))
		return errors.Join(os.WriteFile(at+".new", []byte(bytes), 0o600), os.Rename(at+".new", at))
	}
	word := func(word, bytes string) rankenv.Handler {
		return func(ctx context.Context, _ []byte) ([]byte, error) {
			return nil, errors.Join(say(ctx, word), hold(bytes))
		}
	}
	return map[string]rankenv.Handler{
		"offload": word("offload", os.Getenv(keepsVar)), "onload": word("onload", os.Getenv(takesVar)),
		"work": func(ctx context.Context, in []byte) ([]byte, error) {
			err := say(ctx, "work")
			if string(in) == fmt.Sprintf("%d of %d", me.Rank, me.Attempt) { // dies in this attempt only
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			return nil, err
		},
	}
}

// turning is the fixture of a test: a reservation whose groups take turns.
type turning struct {
	*testing.T
	*group.Reservation
	ctx context.Context
	log string
}

// takeTurns reserves GPUs of one node, each of which several groups share.
func takeTurns(t *testing.T, gpus int) *turning {
	t.Helper()
	c := clustertest.Start(t, gpus).Connect(t)
	r, err := group.Reserve(t.Context(), c, launcher.Job{Resources: launcher.Resources{PerNode: []int{2}, GPU: true}}, 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Release(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &turning{t, r, limited(t), filepath.Join(t.TempDir(), "log")}
}

// group starts a group of n workers with the variables env.
func (t *turning) group(name string, n int, env ...string) *group.Group {
	t.Helper()
	return t.restarting(name, n, 1, env...)
}

func (t *turning) restarting(name string, n, restarts int, env ...string) *group.Group {
	t.Helper()
	g := t.starting(name, n, restarts, []string{os.Args[0]}, env...)
	if _, err := g.CallAll(t.ctx, "attempt", nil); err != nil { // once a worker has answered, its place is known
		t.Fatal(err)
	}
	return g
}

func (t *turning) starting(name string, n, restarts int, command []string, env ...string) *group.Group {
	t.Helper()
	j := launcher.Job{ID: name, Command: command, Resources: launcher.Resources{PerNode: []int{n}, GPU: true}}
	j.Env = append([]string{workerVar + "=1", "GORACE=atexit_sleep_ms=0", turnerVar + "=" + name, logVar + "=" + t.log}, env...)
	j.Restarts.Max = restarts
	g, err := t.Group(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = g.Close() })
	return g
}

func (t *turning) said() string {
	text, err := os.ReadFile(t.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	return strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", ", ")
}

func (t *turning) write(suffix string) {
	t.Helper()
	if err := os.WriteFile(t.log+suffix, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// work calls the workers of a group in a turn of the group.
func work(ctx context.Context, g *group.Group) error {
	return g.Active(ctx, 0, func(ctx context.Context) error {
		_, err := g.CallAll(ctx, "work", nil)
		return err
	})
}

func (t *turning) work(g *group.Group) {
	t.Helper()
	if err := work(t.ctx, g); err != nil {
		t.Error(err)
	}
}

// die kills worker 1 of a group, once, and returns the error of the worker's call.
func (t *turning) die(ctx context.Context, g *group.Group) error {
	t.Helper()
	_, err := g.Call(ctx, 1, "work", []byte("1 of 0"))
	if _, ok := errors.AsType[*group.WorkerError](err); !ok {
		t.Errorf("%v, want how a worker failed", err)
	}
	return err
}

// apart runs do in a new goroutine, and returns a channel that gets its error.
func apart(do func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return done
}

func (t *turning) waiting(n int) {
	t.Helper()
	if err := t.Waiting(t.ctx, n); err != nil {
		t.Fatalf("%d do not wait: %v", n, err)
	}
}

func (t *turning) want(err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, want %q", err, text)
	}
}

// gate makes a named pipe, and returns a function that lets its readers go on.
func (t *turning) gate(path string) (open func()) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pipe.Close() })
	return func() {
		t.Helper()
		t.write(".open")
		if err := errors.Join(os.Rename(t.log+".open", path), pipe.Close()); err != nil { // a later reader finds an empty file
			t.Error(err)
		}
	}
}

// nothing fails the test if a turn runs it.
func (t *turning) nothing(context.Context) error {
	t.Error("it has its turn")
	return nil
}

// sides sorts groups, which have one worker each, by the GPUs of their workers.
func (t *turning) sides(groups ...*group.Group) []*group.Group {
	t.Helper()
	gpu := map[*group.Group]string{}
	for _, g := range groups {
		out, err := g.Call(t.ctx, 0, "gpu", nil)
		if err != nil {
			t.Fatal(err)
		}
		gpu[g] = string(out)
	}
	slices.SortStableFunc(groups, func(a, b *group.Group) int { return strings.Compare(gpu[a], gpu[b]) })
	if n := len(groups) / 2; gpu[groups[0]] != gpu[groups[n-1]] || gpu[groups[n]] != gpu[groups[2*n-1]] || gpu[groups[0]] == gpu[groups[n]] {
		t.Fatalf("the GPUs are %v", gpu)
	}
	return groups
}

// fakeDriver gives the agents of a test two GPUs of the driver of internal/host/gpu's tests, and
// one GPU that is split in two. It returns the directory that says which process holds how much
// memory.
func fakeDriver(t *testing.T) string {
	t.Helper()
	header, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}/pkg/nvml", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir, held := t.TempDir(), t.TempDir()
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-w", "-DNVML_NO_UNVERSIONED_FUNC_DEFS", "-I", strings.TrimSpace(string(header)),
		"-o", filepath.Join(dir, "libnvidia-ml.so.1"), "../../internal/host/gpu/testdata/nvml.c").CombinedOutput(); err != nil {
		t.Fatalf("build the fake driver: %v\n%s", err, out)
	}
	for _, uuid := range []string{"GPU-8f000000-0000", "GPU-0f000000-0000"} {
		if err := os.Mkdir(filepath.Join(held, uuid), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("LD_LIBRARY_PATH", dir)
	t.Setenv("FAKE_NVML_HELD", held)
	return held
}
