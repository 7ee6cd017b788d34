package endpoint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/wire/endpoint"
	"github.com/golaunch/golaunch/internal/wire/mtls"
)

// TestALargeObjectComesOnce checks that an object is sent to a node once for all its workers, and
// in order with the other messages.
func TestALargeObjectComesOnce(t *testing.T) {
	token := mtls.NewToken()
	d, addr := open(t, token)
	n := connect(t, addr)
	var all []*pair
	for range 4 {
		all = append(all, bring(t, d, n, token.Submit(), mine))
	}
	before := n.passed.Load()
	total := 0
	for _, size := range []int{8 << 20, 64 << 10, 1, 0, 5<<20 + 3} {
		content := noise(size)
		f := memory(t, content)
		total += size
		for _, p := range all {
			if err := errors.Join(p.say([]byte("before"), nil), p.say([]byte("large"), f), p.say(nil, nil), p.say([]byte("after"), nil)); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range all {
			p.hears(t, []byte("before"), nil)
			p.hears(t, []byte("large"), content)
			p.hears(t, nil, nil)
			p.hears(t, []byte("after"), nil)
			// The answer is sent as bytes, and read while it is written, because only the kernel's
			// buffers hold unread bytes.
			answered := make(chan error, 1)
			go func() {
				_, err := p.worker.Write(content)
				answered <- err
			}()
			got := make([]byte, size)
			_, err := io.ReadFull(p.program, got)
			if err = errors.Join(err, <-answered); err != nil || !bytes.Equal(got, content) {
				t.Fatal("the answer is another one", err)
			}
		}
	}
	if passed := n.passed.Load() - before; passed > int64(total)*101/100 {
		t.Errorf("%d bytes to four workers took %d over the network", total, passed)
	}
}

// TestMemoryThatIsUsedAgain has memory with another content at each use. Its offset identifies the
// use, and has the length.
func TestMemoryThatIsUsedAgain(t *testing.T) {
	token := mtls.NewToken()
	d, addr := open(t, token)
	n := connect(t, addr)
	p, q := bring(t, d, n, token, mine), bring(t, d, n, token, mine)
	f := memory(t, make([]byte, 1<<20))
	for use := range int64(5) {
		content := noise(1<<20 - int(use))
		if _, err := f.WriteAt(content, 0); err != nil {
			t.Fatal(err)
		}
		description, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := description.Seek((use+1)<<44|int64(len(content)), io.SeekStart); err != nil {
			t.Fatal(err)
		}
		for _, p := range []*pair{p, q} {
			if err := p.say([]byte("x"), description); err != nil {
				t.Fatal(err)
			}
			p.hears(t, []byte("x"), content)
		}
		description.Close()
		// After a worker got the next message, no other process has the memory open.
		for _, p := range []*pair{p, q} {
			if err := p.say([]byte("y"), nil); err != nil {
				t.Fatal(err)
			}
			p.hears(t, []byte("y"), nil)
		}
	}
	again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := unix.FcntlInt(again.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Errorf("a process still has the memory open: %v", err)
	}
}

// TestAWorkerThatDoesNotRead checks that a worker that does not read delays no other worker, and
// gets everything when it reads. No more unread data is held than documented.
func TestAWorkerThatDoesNotRead(t *testing.T) {
	token := mtls.NewToken()
	d, addr := open(t, token)
	n := connect(t, addr)
	late, p, q := bring(t, d, n, token, mine), bring(t, d, n, token, mine), bring(t, d, n, token, mine)
	var contents [][]byte
	var files []*os.File
	for i := range 20 {
		contents = append(contents, noise(8<<20+i))
		files = append(files, memory(t, contents[i]))
	}
	said := make(chan error, 1)
	go func() {
		for i, f := range files {
			if err := late.say([]byte{byte(i)}, f); err != nil {
				said <- err
				return
			}
		}
		said <- nil
	}()
	for i, f := range files {
		for _, p := range []*pair{p, q} {
			if err := p.say([]byte{byte(i)}, f); err != nil {
				t.Fatal(err)
			}
			p.hears(t, []byte{byte(i)}, contents[i])
		}
	}
	// The limits are 64 MiB of unread data of the late worker, one blob for which the worker waits,
	// and 64 MiB of resting blobs.
	if got, most := d.Held()+late.unread(t), int64(64+9+64)<<20; got > most {
		t.Errorf("the node holds %d bytes for a worker that does not read, at most %d", got, most)
	}
	for i := range files {
		late.hears(t, []byte{byte(i)}, contents[i])
	}
	if err := <-said; err != nil {
		t.Fatal(err)
	}
}

// TestADeathWhileABlobComes: if a worker dies, in any way, while its connection carries a blob, the
// other workers still get the blob.
func TestADeathWhileABlobComes(t *testing.T) {
	content := noise(4 << 20)
	for name, die := range map[string]func(*pair){
		"the network": func(p *pair) { p.wire.cut() },
		"the worker":  func(p *pair) { p.worker.Close() },
	} {
		for _, at := range []int64{0, 1, 200, 1 << 20, 4 << 20} {
			t.Run(fmt.Sprintf("%s after %d bytes", name, at), func(t *testing.T) {
				token := mtls.NewToken()
				d, addr := open(t, token)
				n := connect(t, addr)
				first, p, q := bring(t, d, n, token, mine), bring(t, d, n, token, mine), bring(t, d, n, token, mine)
				f := memory(t, content)
				first.wire.limit.Store(first.wire.passed.Load() + at)
				if err := first.say([]byte("large"), f); err != nil {
					t.Fatal(err)
				}
				<-first.wire.stopped
				for _, p := range []*pair{p, q} {
					if err := p.say([]byte("large"), f); err != nil {
						t.Fatal(err)
					}
				}
				die(first)
				for _, p := range []*pair{p, q} {
					p.hears(t, []byte("large"), content)
				}
				if <-first.over; first.err != nil {
					t.Error(first.err)
				}
				if _, err := io.Copy(io.Discard, first.worker); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("the first worker does not see the end of its connection")
				}
			})
		}
	}
}

// TestAProgramThatHasGone checks that the earlier messages of an ended program still arrive.
func TestAProgramThatHasGone(t *testing.T) {
	token := mtls.NewToken()
	d, addr := open(t, token)
	p := bring(t, d, connect(t, addr), token, mine)
	content := noise(4 << 20)
	f := memory(t, content)
	if err := errors.Join(p.say([]byte("large"), f), p.say([]byte("last"), nil)); err != nil {
		t.Fatal(err)
	}
	p.program.Close()
	p.hears(t, []byte("large"), content)
	p.hears(t, []byte("last"), nil)
	if _, _, err := p.hear(); !errors.Is(err, io.EOF) {
		t.Errorf("it gets more: %v", err)
	}
}

// TestOrder checks that each worker gets all messages, large and small, unchanged and in order.
func TestOrder(t *testing.T) {
	token := mtls.NewToken()
	d, addr := open(t, token)
	n := connect(t, addr)
	seed := mrand.Uint64()
	random := mrand.New(mrand.NewPCG(seed, 0))
	type message struct {
		text, content []byte
		beside        *os.File
	}
	var messages []message
	for range 100 {
		m := message{text: noise([]int{0, 1, 50, 3000, 100_000, 600_000}[random.IntN(6)])}
		if random.IntN(3) == 0 {
			m.content = noise([]int{1, 64 << 10, 300_000, 1 << 20}[random.IntN(4)])
			m.beside = memory(t, m.content)
		}
		messages = append(messages, m)
	}
	var all sync.WaitGroup
	for range 3 {
		p := bring(t, d, n, token, mine)
		all.Go(func() {
			for _, m := range messages {
				if err := p.say(m.text, m.beside); err != nil {
					t.Error(err)
					return
				}
			}
		})
		all.Go(func() {
			for i, m := range messages {
				text, beside, err := p.hear()
				if err != nil || !bytes.Equal(text, m.text) || !bytes.Equal(beside, m.content) {
					t.Errorf("message %d of seed %d is another one (%v)", i, seed, err)
					p.worker.Close()
					return
				}
			}
		})
	}
	all.Wait()
}

// TestInline checks that a worker that takes no descriptors gets an object as bytes, and still only
// once.
func TestInline(t *testing.T) {
	token := mtls.NewToken()
	d, addr := open(t, token)
	d.For(4)
	n := connect(t, addr)
	content := noise(6 << 20)
	var all sync.WaitGroup
	var passed int64
	for range 4 {
		w := come(t, d, frame(mine))
		s, _, taken, err := endpoint.Dial(t.Context(), n.addr, mtls.Client(token, mtls.Identity{}), mine)
		if err != nil || taken() != nil {
			t.Fatal(err)
		}
		passed = n.passed.Load()
		all.Go(func() {
			defer s.Close()
			answer := make(chan error, 1)
			go func() {
				_, err := io.ReadFull(s, make([]byte, 2))
				answer <- err
			}()
			for id := range uint64(2) {
				if _, err := s.Write([]byte("head")); err != nil {
					t.Error(err)
				}
				if err := s.Send(endpoint.Blob{ID: endpoint.ID{id}, Size: int64(len(content)), Content: bytes.NewReader(content), Inline: true}); err != nil {
					t.Error(err)
				}
			}
			if err := <-answer; err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			for range 2 {
				got := make([]byte, 4+len(content))
				if _, err := io.ReadFull(w, got); err != nil || string(got[:4]) != "head" || !bytes.Equal(got[4:], content) {
					t.Error("another one comes", err)
				}
				if _, err := w.Write([]byte{1}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if passed := n.passed.Load() - passed; passed > int64(len(content))*2*101/100 {
		t.Errorf("%d bytes, twice, took %d over the network", len(content), passed)
	}
}

// TestInvalidFramesEndTheirConnection checks that invalid frames end their own connection, and no
// other.
func TestInvalidFramesEndTheirConnection(t *testing.T) {
	token := mtls.NewToken()
	d, addr := open(t, token)
	n := connect(t, addr)
	neighbour := bring(t, d, n, token, mine)
	config := mtls.Client(token, mtls.Identity{})
	ref := append([]byte{2, 32, 0, 0, 0}, make([]byte, 32)...)
	negative := bytes.Repeat([]byte{0xff}, 37)
	copy(negative, ref[:5])
	for name, said := range map[string][]byte{
		"noise": noise(100), "an unknown kind": {9, 0, 0, 0, 0}, "a long chunk": {1, 0, 0, 0, 1}, "an answer": {4, 0, 0, 0, 0},
		"a short reference": {2, 1, 0, 0, 0, 0}, "a negative size": negative, "two before a byte": append(append([]byte{}, ref...), ref...),
	} {
		w := come(t, d, frame(theirs))
		s, _, taken, err := endpoint.Dial(t.Context(), n.addr, config, theirs)
		if err != nil || taken() != nil {
			t.Fatal(err)
		}
		if _, err := s.Conn.Write(said); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(w); errors.Is(err, os.ErrDeadlineExceeded) || len(got) > 0 && name != "noise" {
			t.Errorf("%s: the worker gets %q, %v", name, got, err)
		}
		s.Close()
	}
	// A program may send only one descriptor at once, and only of memory.
	for name, beside := range map[string]func(f *os.File) []int{
		"two": func(f *os.File) []int { return []int{int(f.Fd()), int(f.Fd())} },
		"many": func(f *os.File) []int {
			return []int{int(f.Fd()), int(f.Fd()), int(f.Fd()), int(f.Fd()), int(f.Fd()), int(f.Fd())}
		},
		"a pipe": func(*os.File) []int {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.Close(); w.Close() })
			return []int{int(r.Fd())}
		},
		"memory that is shorter than it says": func(f *os.File) []int {
			if _, err := f.Seek(1<<44|1<<30, io.SeekStart); err != nil {
				t.Fatal(err)
			}
			return []int{int(f.Fd())}
		},
	} {
		p := bring(t, d, n, token, theirs)
		f := memory(t, []byte("content"))
		if _, _, err := p.program.WriteMsgUnix([]byte("x"), unix.UnixRights(beside(f)...), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(p.program); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: it is taken", name)
		}
		if <-p.over; p.err == nil {
			t.Errorf("%s: the reason for the end of the connection is not reported", name)
		}
	}
	content := noise(1 << 20)
	if err := neighbour.say(nil, memory(t, content)); err != nil {
		t.Fatal(err)
	}
	neighbour.hears(t, nil, content)
}

// TestACallThatIsCancelled checks that the cancellation arrives before the object of the next call.
func TestACallThatIsCancelled(t *testing.T) {
	token := mtls.NewToken()
	d, addr := open(t, token)
	n := connect(t, addr)
	p, start := meet(t, d, n, token, mine)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f := memory(t, noise(4<<20))
	p.wire.limit.Store(p.wire.passed.Load() + 1<<20)
	if err := p.say([]byte("cancel"), nil); err != nil {
		t.Fatal(err)
	}
	if err := p.say([]byte("large"), f); err != nil {
		t.Fatal(err)
	}
	start() // so that it reads both at once
	p.hears(t, []byte("cancel"), nil)
	select {
	case <-p.wire.stopped:
	case <-ctx.Done():
		t.Error("the object does not come")
	}
}
