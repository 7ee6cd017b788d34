package stacks

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/golaunch/golaunch/internal/host/safefile"
)

// TestTurns has readers that never return: no process has two readers, and each user keeps a share.
func TestTurns(t *testing.T) {
	d := newReaderSlots()
	of := func(user uint32, pid int) Process { return Process{PID: pid, Rights: &safefile.Rights{UID: user}} }
	for pid := range readers {
		p := of(uint32(pid/readersOfUser), pid)
		if _, why := d.take(p); why != nil {
			t.Fatalf("process %d has no reader: %v", pid, why)
		}
		if _, why := d.take(p); !errors.Is(why, errHeld) {
			t.Errorf("process %d has another reader: %v", pid, why)
		}
		_, why := d.take(of(p.user(), 1000))
		if full := (pid+1)%readersOfUser == 0; errors.Is(why, errBusy) != full {
			t.Errorf("after %d readers their user gets one more: %v", pid%readersOfUser+1, why)
		} else if why == nil {
			d.giveBack(of(p.user(), 1000))
		}
	}
	if _, why := d.take(of(99, 1000)); !errors.Is(why, errBusy) {
		t.Errorf("there are more readers: %v", why)
	}
	for pid := range readers {
		d.giveBack(of(uint32(pid/readersOfUser), pid))
	}
	if len(d.reading) > 0 || len(d.ofUser) > 0 {
		t.Errorf("%v and %v remain", d.reading, d.ofUser)
	}
}

// TestHeld waits for a process whose memory is being read.
func TestHeld(t *testing.T) {
	p := Process{PID: os.Getpid(), Rank: 3}
	d := newReaderSlots()
	ctx, cancel := context.WithCancel(t.Context())
	if !d.await(ctx, p, func(err error) { t.Error(err) }) {
		t.Fatal("there is no reader")
	}
	var told []error
	if !d.await(t.Context(), p, func(why error) { told = append(told, why); d.giveBack(p) }) {
		t.Error("the wait did not last until the reader came back")
	}
	if d.await(ctx, p, func(why error) { told = append(told, why); cancel() }) {
		t.Error("a process has two readers")
	}
	if len(told) != 2 || !errors.Is(told[0], errHeld) || !errors.Is(told[1], errHeld) {
		t.Errorf("it says %v", told)
	}
}

// TestTakeHeld has a process with a reader that never returns. The other processes are still read.
func TestTakeHeld(t *testing.T) {
	held := Process{PID: os.Getpid()}
	if _, why := nodeReaders.take(held); why != nil {
		t.Fatal(why)
	}
	defer nodeReaders.giveBack(held)
	p := start(t, pythons(t)[0], "testdata/program.py")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tell := func(s Sample, _ int) {
		if s.Missing != errHeld.Error() {
			t.Errorf("the sample is %+v", s)
		}
		cancel()
	}
	readOne(ctx, held, tell)
	if s := Take(t.Context(), []Process{{PID: p.Process.Pid}}, Options{})[0]; s.Missing != "" || len(s.Threads) != 1 {
		t.Errorf("the sample is %+v", s)
	}
}
