package tcpstore

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

//go:embed testdata/suite.py
var suite string

//go:embed testdata/gloo.py
var gloo string

func serveHere(t *testing.T, o Options) *Store {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Serve(l, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func dialHere(t *testing.T, s *Store) *Client {
	t.Helper()
	c, err := Dial(t.Context(), s.Addr(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// expect fails the test when a call gave an error or not what it should.
func expect[T any](t *testing.T, got T, err error) func(want T) {
	return func(want T) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, error %v; want %v", got, err, want)
		}
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// call is expect for the results of a call.
func call[T any](got T, err error) func(*testing.T, T) {
	return func(t *testing.T, want T) {
		t.Helper()
		expect(t, got, err)(want)
	}
}

func TestOperations(t *testing.T) {
	s := serveHere(t, Options{})
	c, ctx := dialHere(t, s), t.Context()
	ok(t, c.Set(ctx, "k", []byte("v")))
	call(c.Get(ctx, "k"))(t, []byte("v"))
	call(c.Add(ctx, "n", 5))(t, 5)
	call(c.Add(ctx, "n", -7))(t, -2)
	call(c.Get(ctx, "n"))(t, []byte("-2"))
	ok(t, c.Append(ctx, "k", []byte("w")))
	ok(t, c.MultiSet(ctx, map[string][]byte{"a": []byte("1"), "b": []byte("2")}))
	call(c.MultiGet(ctx, "a", "k", "b"))(t, [][]byte{[]byte("1"), []byte("vw"), []byte("2")})
	call(c.CompareSet(ctx, "c", nil, []byte("1")))(t, []byte("1"))
	call(c.CompareSet(ctx, "c", []byte("0"), []byte("2")))(t, []byte("1"))
	call(c.CompareSet(ctx, "c", []byte("1"), []byte("2")))(t, []byte("2"))
	call(c.CompareSet(ctx, "none", []byte("x"), []byte("2")))(t, []byte("x"))
	call(c.Check(ctx, "a", "b"))(t, true)
	call(c.Check(ctx, "a", "none"))(t, false)
	call(c.NumKeys(ctx))(t, 5)
	call(c.DeleteKey(ctx, "a"))(t, true)
	call(c.DeleteKey(ctx, "a"))(t, false)
	keys, err := c.ListKeys(ctx)
	slices.Sort(keys)
	expect(t, keys, err)([]string{"b", "c", "k", "n"})

	ok(t, c.QueuePush(ctx, "q", []byte("1")))
	ok(t, c.QueuePush(ctx, "q", []byte("2")))
	call(c.QueueLen(ctx, "q"))(t, 2)
	call(c.QueuePop(ctx, "q"))(t, []byte("1"))
	call(c.QueuePop(ctx, "q"))(t, []byte("2"))
	if _, found, err := c.QueueTryPop(ctx, "q"); found || err != nil {
		t.Errorf("an empty queue gave something: %v", err)
	}
}

func TestWaits(t *testing.T) {
	s := serveHere(t, Options{})
	waiter, setter, ctx := dialHere(t, s), dialHere(t, s), t.Context()
	got := make(chan error, 1)
	go func() { got <- waiter.Wait(ctx, "a", "b") }()
	ok(t, setter.Set(ctx, "a", nil))
	_, err := setter.Add(ctx, "b", 1)
	ok(t, err)
	ok(t, <-got)

	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := waiter.Wait(short, "never"); err == nil {
		t.Error("a wait for a key that never comes ended")
	}
	call(waiter.Get(ctx, "b"))(t, []byte("1")) // the stream is in step after a wait was cancelled

	var all sync.WaitGroup
	for range 8 {
		c := dialHere(t, s)
		all.Go(func() {
			if err := c.Barrier(ctx, "gate", 8); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestStrangers(t *testing.T) {
	var mu sync.Mutex
	var warned []string
	s := serveHere(t, Options{
		Allow: func(a netip.Addr) bool { return a == netip.MustParseAddr("127.0.0.1") },
		Warn: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			warned = append(warned, err.Error())
		},
	})
	c := dialHere(t, s)
	ok(t, c.Set(t.Context(), "k", []byte("v")))
	hello := binary.LittleEndian.AppendUint32([]byte{0}, 0x3C85F7CE)
	u64 := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
	for name, bytes := range map[string][]byte{
		"an unknown operation":    append(slices.Clone(hello), 255),
		"another magic number":    {0, 1, 2, 3, 4, 1, 0, 0, 0},
		"http":                    []byte("GET / HTTP/1.1\r\n\r\n"),
		"a length of 2^63":        slices.Concat(hello, []byte{3}, u64(1<<63)),
		"a key over the limit":    slices.Concat(hello, []byte{3}, u64(8193)),
		"a list of a million":     slices.Concat(hello, []byte{5}, u64(1_000_000)),
		"a value over the limit":  slices.Concat(hello, []byte{1}, u64(1), []byte("k"), u64(8<<20+1)),
		"a queue name of nothing": slices.Concat(hello, []byte{99}, u64(0)),
	} {
		conn, err := net.Dial("tcp4", s.Addr().String())
		ok(t, err)
		ok(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
		_, _ = conn.Write(bytes)
		if _, err := conn.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: the connection is still open (%v)", name, err)
		}
		conn.Close()
	}
	far, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp4", s.Addr().String())
	ok(t, err)
	ok(t, far.SetDeadline(time.Now().Add(10*time.Second)))
	if _, err := io.ReadAll(far); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Error("a machine that is no node of the job is connected")
	}
	far.Close()
	call(c.Get(t.Context(), "k"))(t, []byte("v"))
	mu.Lock()
	defer mu.Unlock()
	if len(warned) == 0 || !strings.Contains(strings.Join(warned, "\n"), "127.0.0.2") {
		t.Errorf("the strangers are not named: %q", warned)
	}
}

func TestTorchClients(t *testing.T) {
	for _, torch := range torches(t) {
		t.Run(torch.name, func(t *testing.T) {
			s := serveHere(t, Options{Warn: func(err error) { t.Log(err) }})
			out, err := torch.python(t.Context(), suite, nil, fmt.Sprint(s.Addr().Port())).CombinedOutput()
			if err != nil || !strings.HasSuffix(string(out), "ok\n") {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// TestTorchGroups makes gloo groups, then others on a fresh store, as a restarted gang does.
func TestTorchGroups(t *testing.T) {
	const size = 4
	for _, torch := range torches(t) {
		if torch.root != "" {
			continue // Debian builds a newer torch without libuv, and its init_process_group then refuses to begin
		}
		for attempt := range 2 {
			t.Run(fmt.Sprint(torch.name, attempt), func(t *testing.T) {
				s := serveHere(t, Options{Warn: func(err error) { t.Log(err) }})
				var all sync.WaitGroup
				for rank := range size {
					cmd := torch.python(t.Context(), gloo, []string{
						"MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", s.Addr().Port()), "TORCHELASTIC_USE_AGENT_STORE=True",
						fmt.Sprint("TORCHELASTIC_RESTART_COUNT=", attempt), fmt.Sprint("RANK=", rank), fmt.Sprint("WORLD_SIZE=", size),
						"GLOO_SOCKET_IFNAME=lo",
					})
					all.Go(func() {
						if out, err := cmd.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "ok\n") {
							t.Errorf("rank %d: %v\n%s", rank, err, out)
						}
					})
				}
				all.Wait()
			})
		}
	}
}
