package launcher_test

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
	"time"

	"github.com/golaunch/golaunch/internal/clustertest"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/rankenv"
)

// Variables of a worker that writes down what it is told, in the file LOG. What FAILS names does not work until a file LOG.well is there, and what SLOW names waits
// while the file LOG.go is a pipe that nobody closes; of what DIES names the first attempt does. HELD is the directory of a driver that is none, which KEEPS and TAKES are for, in bytes.
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

// turnerHandlers are those of such a worker.
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
			if string(in) == fmt.Sprintf("%d of %d", me.Rank, me.Attempt) { // dies, once
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			return nil, err
		},
	}
}

// turning is a reservation whose groups take turns.
type turning struct {
	*testing.T
	*launcher.Reservation
	ctx context.Context
	log string
}

// takeTurns holds two GPUs of a node, for several groups each.
func takeTurns(t *testing.T, gpus int) *turning {
	t.Helper()
	c := clustertest.Start(t, gpus).Connect(t)
	r, err := c.Reserve(t.Context(), launcher.Job{Resources: launcher.Resources{PerNode: []int{2}, GPU: true}}, 4)
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

// group has n workers, and variables for them.
func (t *turning) group(name string, n int, env ...string) *launcher.Group {
	t.Helper()
	return t.restarting(name, n, 1, env...)
}

func (t *turning) restarting(name string, n, restarts int, env ...string) *launcher.Group {
	t.Helper()
	g := t.starting(name, n, restarts, []string{os.Args[0]}, env...)
	if _, err := g.CallAll(t.ctx, "attempt", nil); err != nil { // so that its place is known
		t.Fatal(err)
	}
	return g
}

func (t *turning) starting(name string, n, restarts int, command []string, env ...string) *launcher.Group {
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

// work has a group do something in a turn of its.
func work(ctx context.Context, g *launcher.Group) error {
	return g.Active(ctx, 0, func(ctx context.Context) error {
		_, err := g.CallAll(ctx, "work", nil)
		return err
	})
}

func (t *turning) work(g *launcher.Group) {
	t.Helper()
	if err := work(t.ctx, g); err != nil {
		t.Error(err)
	}
}

// die kills worker 1 of a group, once, and returns how its call ends.
func (t *turning) die(ctx context.Context, g *launcher.Group) error {
	t.Helper()
	_, err := g.Call(ctx, 1, "work", []byte("1 of 0"))
	if _, ok := errors.AsType[*launcher.WorkerError](err); !ok {
		t.Errorf("%v, want how a worker failed", err)
	}
	return err
}

// apart does something in a goroutine of its own.
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

// gate makes a pipe at a path, for whose end somebody waits who reads it, and returns what ends it.
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
		if err := errors.Join(os.Rename(t.log+".open", path), pipe.Close()); err != nil { // who comes later reads a file that is empty
			t.Error(err)
		}
	}
}

// nothing must not run in a turn.
func (t *turning) nothing(context.Context) error {
	t.Error("it has its turn")
	return nil
}

// TestTurns of groups with the same GPUs: each offloads before another one loads, and keeps what it has until then.
func TestTurns(tt *testing.T) {
	t := takeTurns(tt, 2)
	a, b := t.group("a", 2), t.group("b", 2)
	for _, g := range []*launcher.Group{a, a, b, a} {
		t.work(g)
	}
	if got, want := t.said(), "b offload, a onload, a work, a work, a offload, b onload, b work, b offload, a onload, a work"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	plain := t.group("plain", 2, turnerVar+"=")
	if err := plain.Active(t.ctx, 0, func(ctx context.Context) error {
		_, err := plain.CallAll(ctx, "rank", nil)
		return err
	}); err != nil {
		t.Errorf("a group that has no such handlers: %v", err)
	}
}

// TestTurnsAreInOrder of those who wait, but who comes to a group that has its turn shares it.
func TestTurnsAreInOrder(tt *testing.T) {
	t := takeTurns(tt, 2)
	a, b, c := t.group("a", 2), t.group("b", 2), t.group("c", 2)
	var first, second <-chan error
	err := a.Active(t.ctx, 0, func(context.Context) error {
		first = apart(func() error { return work(t.ctx, b) })
		t.waiting(1)
		second = apart(func() error { return work(t.ctx, c) })
		t.waiting(2)
		t.want(c.Active(t.ctx, time.Millisecond, t.nothing), "c did not get its turn: context deadline exceeded: it is the turn of a")
		return work(t.ctx, a)
	})
	if err := errors.Join(err, <-first, <-second); err != nil {
		t.Error(err)
	}
	if got := t.said(); !strings.HasSuffix(got, "a onload, a work, a offload, b onload, b work, b offload, c onload, c work") {
		t.Error(got)
	}
	open := t.gate(t.log + ".go")
	slow := t.group("slow", 2, slowVar+"=onload")
	first = apart(func() error { return work(t.ctx, slow) })
	second = apart(func() error { return work(t.ctx, slow) })
	t.waiting(1) // for what the other has begun
	t.want(slow.Active(t.ctx, 10*time.Millisecond, t.nothing), "slow did not get its turn: context deadline exceeded: its workers are told to load")
	open()
	if err := errors.Join(<-first, <-second); err != nil {
		t.Error(err)
	}
	if got := t.said(); !strings.HasSuffix(got, "c work, c offload, slow onload, slow work, slow work") {
		t.Error(got)
	}
	many := make(chan error)
	inside := make(chan struct{}, 1)
	for _, g := range []*launcher.Group{a, b, c} {
		go func() {
			var err error
			for range 4 {
				err = errors.Join(err, g.Active(t.ctx, 0, func(ctx context.Context) error {
					select {
					case inside <- struct{}{}:
					default:
						return errors.New("two have their turn at once")
					}
					_, err := g.CallAll(ctx, "work", nil)
					<-inside
					return err
				}))
			}
			many <- err
		}()
	}
	if err := errors.Join(<-many, <-many, <-many); err != nil {
		t.Error(err)
	}
}

// TestTurnsWithinTurns: what would wait for itself is refused, by whatever way.
func TestTurnsWithinTurns(tt *testing.T) {
	fakeDriver(tt)
	t := takeTurns(tt, clustertest.Found)
	left, right, again, across := t.group("left", 1), t.group("right", 1), t.group("again", 1), t.group("across", 1)
	both := t.group("both", 2)
	t.work(both) // who has the first GPU is known then
	sides := t.sides(left, right, again, across)
	left, again, right, across = sides[0], sides[1], sides[2], sides[3]
	var over <-chan struct{}
	var waits <-chan error
	err := left.Active(t.ctx, 0, func(ctx context.Context) error {
		over = ctx.Done()
		t.want(again.Active(ctx, 0, t.nothing), again.ID+" cannot have its turn within that of "+left.ID+", which has the same GPUs")
		waits = apart(func() error { return work(t.ctx, both) })
		t.waiting(1)
		// Neither what is a part of this turn nor what has other GPUs is behind those who wait for the end of this turn.
		err := errors.Join(work(ctx, left), work(ctx, right), left.Active(ctx, time.Hour, func(ctx context.Context) error { return work(ctx, right) }))
		select {
		case <-waits:
			t.Error("two have their turn at once")
		default:
		}
		return err
	})
	if err := errors.Join(err, <-waits); err != nil {
		t.Error(err)
	}
	select {
	case <-over:
	default:
		t.Error("the context of a turn goes on without it")
	}
	entered := make(chan struct{})
	var other <-chan error
	var refused error
	err = left.Active(t.ctx, 0, func(ctx context.Context) error {
		other = apart(func() error {
			return right.Active(t.ctx, 0, func(ctx context.Context) error {
				close(entered)
				return work(ctx, again) // waits for the end of left
			})
		})
		select {
		case <-entered:
		case <-t.ctx.Done():
		}
		t.waiting(1)
		refused = across.Active(ctx, 0, t.nothing)
		return nil
	})
	t.want(refused, across.ID+" cannot have its turn within that of "+left.ID+": it is the turn of "+right.ID)
	if err := errors.Join(err, <-other); err != nil {
		t.Error(err)
	}
}

// sides sorts groups of one worker by their GPU.
func (t *turning) sides(groups ...*launcher.Group) []*launcher.Group {
	t.Helper()
	gpu := map[*launcher.Group]string{}
	for _, g := range groups {
		out, err := g.Call(t.ctx, 0, "gpu", nil)
		if err != nil {
			t.Fatal(err)
		}
		gpu[g] = string(out)
	}
	slices.SortStableFunc(groups, func(a, b *launcher.Group) int { return strings.Compare(gpu[a], gpu[b]) })
	if n := len(groups) / 2; gpu[groups[0]] != gpu[groups[n-1]] || gpu[groups[n]] != gpu[groups[2*n-1]] || gpu[groups[0]] == gpu[groups[n]] {
		t.Fatalf("the GPUs are %v", gpu)
	}
	return groups
}

// TestTurnsThatFail end, and the next one asks again.
func TestTurnsThatFail(tt *testing.T) {
	t := takeTurns(tt, 2)
	a, b := t.group("a", 2), t.group("b", 2, failsVar+"=offload")
	mine := errors.New("mine")
	if err := b.Active(t.ctx, 0, func(context.Context) error { return mine }); !errors.Is(err, mine) {
		t.Error(err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = b.Active(t.ctx, 0, func(context.Context) error { panic("mine") })
	}()
	err := a.Active(t.ctx, 0, t.nothing)
	if failed, ok := errors.AsType[*launcher.WorkerError](err); !ok || failed.Message != "it cannot offload" {
		t.Errorf("%v, want what the worker says", err)
	}
	t.want(err, "a did not get its turn: offload of b: worker 0 on n0: it cannot offload")
	t.write(".well")
	t.work(a)
	if got, want := t.said(), "a offload, b onload, b offload, b offload, a onload, a work"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	open := t.gate(t.log + ".go")
	slow := t.group("slow", 2, slowVar+"=offload")
	t.want(a.Active(t.ctx, 300*time.Millisecond, t.nothing), "slow has not answered offload: context deadline exceeded")
	open()
	t.work(a)
	t.work(slow)
}

// TestTurnsOfGroupsThatDie end with the group; one that starts again counts as one that has loaded.
func TestTurnsOfGroupsThatDie(tt *testing.T) {
	t := takeTurns(tt, 2)
	a, b := t.group("a", 2), t.group("b", 2)
	died := errors.New("it died")
	if err := a.Active(t.ctx, 0, func(ctx context.Context) error { return errors.Join(died, t.die(ctx, a)) }); !errors.Is(err, died) {
		t.Error(err)
	}
	t.work(b)
	if got, want := t.said(), "b offload, a onload, a offload, b onload, b work"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	c := t.restarting("c", 2, 0)
	err := c.Active(t.ctx, 0, func(ctx context.Context) error {
		t.die(ctx, c)
		return work(t.ctx, b) // it waits until c has ended
	})
	if err != nil {
		t.Errorf("the turn of a group that has ended goes on: %v", err)
	}
	t.want(work(t.ctx, c), "c did not get its turn: the group has ended")
	d, e := t.group("d", 2, diesVar+"=offload"), t.restarting("e", 2, 0, diesVar+"=offload")
	t.work(a)
	if got := t.said(); !strings.HasSuffix(got, "b offload, d offload, d offload, e offload, a onload, a work") {
		t.Error(got)
	}
	t.work(d)
	t.want(work(t.ctx, e), "e did not get its turn: the group has ended")
	err = b.Active(t.ctx, 0, func(context.Context) error {
		waits := apart(func() error { return work(t.ctx, a) })
		t.waiting(1)
		if _, err := a.Close(); err != nil {
			t.Error(err)
		}
		t.want(<-waits, "a did not get its turn: the group has ended")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestTurnsOfGroupsWhoseWorkersLeave: those that are left take turns as before.
func TestTurnsOfGroupsWhoseWorkersLeave(tt *testing.T) {
	t := takeTurns(tt, 2)
	a, b := t.group("a", 2), t.group("b", 2)
	t.work(a)
	_, err := a.Call(t.ctx, 1, "leave", []byte("1"))
	t.want(err, "rank 1 on n0 exited with code 0: it is not started again")
	t.work(b)
	if err := a.Active(t.ctx, 0, func(ctx context.Context) error {
		_, err := a.Call(ctx, 0, "work", nil)
		return err
	}); err != nil {
		t.Error(err)
	}
	if got, want := t.said(), "b offload, a onload, a work, a offload, b onload, b work, b offload, a onload, a work"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestTurnsOfGroupsThatStart: before it is known where a group's workers are, they may be on any GPU, and have loaded there.
func TestTurnsOfGroupsThatStart(tt *testing.T) {
	t := takeTurns(tt, 2)
	a, gate := t.group("a", 2), t.log+".gate"
	open := t.gate(gate)
	b := t.starting("b", 1, 0, []string{"sh", "-c", `read _ < "$0"; exec "$1"`, gate, os.Args[0]})
	t.want(b.Active(t.ctx, 10*time.Millisecond, t.nothing), "b did not get its turn: wait for worker 0: context deadline exceeded")
	t.want(a.Active(t.ctx, 10*time.Millisecond, t.nothing), "a did not get its turn: b has not answered offload: wait for worker 0: context deadline exceeded")
	open()
	t.work(a)
	t.work(b)
	if got, want := t.said(), "b offload, a onload, a work, a offload, b onload, b work"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestTurnsOfGroupsThatStartAgain begin when their workers are there.
func TestTurnsOfGroupsThatStartAgain(tt *testing.T) {
	t := takeTurns(tt, 2)
	a, b := t.group("a", 2), t.group("b", 2)
	t.work(a)
	if err := a.Active(t.ctx, 0, func(ctx context.Context) error {
		t.die(t.ctx, b)
		t.want(b.Active(t.ctx, time.Second, t.nothing), "b did not get its turn")
		return nil
	}); err != nil {
		t.Error(err)
	}
	t.work(a) // whose memory workers that are others may have now
	t.work(b)
	if got, want := t.said(), "b offload, a onload, a work, b offload, a work, a offload, b onload, b work"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// fakeDriver has the agents of a test find two GPUs of the driver of internal/gpu's tests, and one that is split in two. It returns the directory of who holds
// what of their memory.
func fakeDriver(t *testing.T) string {
	t.Helper()
	header, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}/pkg/nvml", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir, held := t.TempDir(), t.TempDir()
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-w", "-DNVML_NO_UNVERSIONED_FUNC_DEFS", "-I", strings.TrimSpace(string(header)),
		"-o", filepath.Join(dir, "libnvidia-ml.so.1"), "../internal/gpu/testdata/nvml.c").CombinedOutput(); err != nil {
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

// TestTurnsOnGPUs whose driver is that of the tests of internal/gpu.
func TestTurnsOnGPUs(tt *testing.T) {
	const gib = 1 << 30
	held := fakeDriver(tt)
	t := takeTurns(tt, clustertest.Found)
	env := func(keeps int) []string {
		return []string{heldVar + "=" + held, takesVar + "=" + fmt.Sprint(40*gib), keepsVar + "=" + fmt.Sprint(keeps)}
	}
	a, b := t.group("a", 2, env(gib)...), t.group("b", 2, env(gib)...)
	for _, g := range []*launcher.Group{a, b, a} {
		t.work(g)
	}
	greedy := t.group("greedy", 2, env(30*gib)...)
	t.work(greedy)
	err := a.Active(t.ctx, time.Second, t.nothing)
	failed, ok := errors.AsType[*launcher.GPUMemoryError](err)
	if !ok || len(failed.Held) != 2 {
		t.Fatalf("%v, want who holds what", err)
	}
	for _, h := range failed.Held {
		if h.Node != "n0" || h.Bytes != 30*gib || h.Job != "greedy" || h.PID == 0 || !strings.HasPrefix(h.GPU, "GPU-") {
			t.Errorf("%+v", h)
		}
		t.want(err, fmt.Sprintf("30.0 GiB of %s on n0 by rank %d of greedy (pid %d)", h.GPU, h.Rank, h.PID))
	}
	a.OthersKeep = 31 * gib
	t.work(a)
	a.OthersKeep = 0
	stranger := filepath.Join(held, failed.Held[0].GPU, "1")
	if err := os.WriteFile(stranger, []byte(fmt.Sprint(5*gib)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := greedy.Close(); err != nil {
		t.Error(err)
	}
	for _, h := range failed.Held { // the driver has forgotten who is gone
		if err := os.Remove(filepath.Join(held, h.GPU, fmt.Sprint(h.PID))); err != nil {
			t.Error(err)
		}
	}
	t.want(a.Active(t.ctx, time.Second, t.nothing), "5.0 GiB of "+failed.Held[0].GPU+" on n0 by pid 1, which is of no group")
	freed := apart(func() error { return work(t.ctx, a) })
	if err := os.Remove(stranger); err != nil {
		t.Error(err)
	}
	if err := <-freed; err != nil {
		t.Error(err)
	}
}
