package group_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/clustertest"
	"github.com/golaunch/golaunch/launcher/group"
)

// TestTurns: a group offloads just before another group with the same GPUs loads.
func TestTurns(tt *testing.T) {
	t := takeTurns(tt, 2)
	a, b := t.group("a", 2), t.group("b", 2)
	for _, g := range []*group.Group{a, a, b, a} {
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

// TestTurnsAreInOrder: waiters take turns in order, but a caller of the group whose turn it is
// joins that turn.
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
	t.waiting(1) // the caller waits for the end of the other group's turn
	t.want(slow.Active(t.ctx, 10*time.Millisecond, t.nothing), "slow did not get its turn: context deadline exceeded: its workers are loading")
	open()
	if err := errors.Join(<-first, <-second); err != nil {
		t.Error(err)
	}
	if got := t.said(); !strings.HasSuffix(got, "c work, c offload, slow onload, slow work, slow work") {
		t.Error(got)
	}
	many := make(chan error)
	inside := make(chan struct{}, 1)
	for _, g := range []*group.Group{a, b, c} {
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

// TestTurnsWithinTurns: every kind of deadlock is refused.
func TestTurnsWithinTurns(tt *testing.T) {
	fakeDriver(tt)
	t := takeTurns(tt, clustertest.Found)
	left, right, again, across := t.group("left", 1), t.group("right", 1), t.group("again", 1), t.group("across", 1)
	both := t.group("both", 2)
	t.work(both) // then it is known that both is on the first GPU too
	sides := t.sides(left, right, again, across)
	left, again, right, across = sides[0], sides[1], sides[2], sides[3]
	var over <-chan struct{}
	var waits <-chan error
	err := left.Active(t.ctx, 0, func(ctx context.Context) error {
		over = ctx.Done()
		t.want(again.Active(ctx, 0, t.nothing), again.ID+" cannot have its turn within that of "+left.ID+", which has the same GPUs")
		waits = apart(func() error { return work(t.ctx, both) })
		t.waiting(1)
		// Calls within this turn, and groups with other GPUs, do not queue behind callers that wait
		// for the end of this turn.
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
				return work(ctx, again) // waits for the end of left's turn
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

// TestTurnsThatFail: a turn ends when its function or one of its orders fails, and the next turn
// gives the order again.
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
	if failed, ok := errors.AsType[*group.WorkerError](err); !ok || failed.Message != "it cannot offload" {
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

// TestTurnsOfGroupsThatDie: a turn ends when its group ends, and a group that has restarted counts
// as loaded.
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
		return work(t.ctx, b) // its turn comes when c has ended
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

// TestTurnsWhenWorkersLeave: the remaining workers take turns as before.
func TestTurnsWhenWorkersLeave(tt *testing.T) {
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

// TestTurnsOfGroupsThatStart: while the places of a group's workers are unknown, the workers may be
// on any GPU, and may have loaded there.
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

// TestTurnsOfGroupsThatStartAgain: a turn begins only when the workers of a restarting group have
// connected.
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
	t.work(a) // other workers may now have the memory of a's workers
	t.work(b)
	if got, want := t.said(), "b offload, a onload, a work, b offload, a work, a offload, b onload, b work"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestTurnsOnGPUs uses the driver of the tests of internal/host/gpu.
func TestTurnsOnGPUs(tt *testing.T) {
	const gib = 1 << 30
	held := fakeDriver(tt)
	t := takeTurns(tt, clustertest.Found)
	env := func(keeps int) []string {
		return []string{heldVar + "=" + held, takesVar + "=" + fmt.Sprint(40*gib), keepsVar + "=" + fmt.Sprint(keeps)}
	}
	a, b := t.group("a", 2, env(gib)...), t.group("b", 2, env(gib)...)
	for _, g := range []*group.Group{a, b, a} {
		t.work(g)
	}
	greedy := t.group("greedy", 2, env(30*gib)...)
	t.work(greedy)
	err := a.Active(t.ctx, time.Second, t.nothing)
	failed, ok := errors.AsType[*group.GPUMemoryError](err)
	if !ok || len(failed.Held) != 2 {
		t.Fatalf("%v, want the holders and amounts", err)
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
	for _, h := range failed.Held { // the driver has forgotten ended processes
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
