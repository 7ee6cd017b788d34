package tcpstore

import (
	"context"
	"net"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"
)

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
	c, err := Dial(t.Context(), s.Addr(), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// expect fails the test when a call returned an error or an unexpected result.
func expect[T any](t *testing.T, got T, err error) func(want T) {
	return func(want T) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, error %v; want %v", got, err, want)
		}
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// call is like expect, for a call that returns a result and an error.
func call[T any](got T, err error) func(*testing.T, T) {
	return func(t *testing.T, want T) {
		t.Helper()
		expect(t, got, err)(want)
	}
}

// stands runs a test with a store, and again with a proxy of a store.
func stands(t *testing.T, f func(t *testing.T, s *Store)) {
	t.Run("store", func(t *testing.T) { f(t, serveHere(t, Options{})) })
	t.Run("proxy", func(t *testing.T) { f(t, proxyHere(t, serveHere(t, Options{}))) })
}

func TestOperations(t *testing.T) { stands(t, operate) }

func operate(t *testing.T, s *Store) {
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

func TestWaits(t *testing.T) { stands(t, wakes) }

func wakes(t *testing.T, s *Store) {
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
	call(waiter.Get(ctx, "b"))(t, []byte("1")) // the stream is still in step after a cancelled wait

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
