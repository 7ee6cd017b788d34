package tcpstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
)

// proxyHere serves a proxy of a store.
func proxyHere(t *testing.T, root *Store) *Store {
	t.Helper()
	return serveHere(t, Options{Root: root.Addr(), Warn: func(err error) { t.Log(err) }})
}

// TestProxyLayout checks that a proxy answers like the store, byte for byte, even if a client sends
// several requests before a reply.
func TestProxyLayout(t *testing.T) {
	for _, slowly := range []bool{false, true} {
		s := proxyHere(t, serveHere(t, Options{}))
		conn := bare(t, s)
		exchange(t, conn, slowly, "VALIDATE", hello, nil)
		var requests, replies []byte
		for _, e := range layout {
			exchange(t, conn, slowly, e.name, e.request, e.reply)
			if e.name != "LIST_KEYS" { // the keys have no order
				requests, replies = append(requests, e.request...), append(replies, e.reply...)
			}
		}
		conn = bare(t, proxyHere(t, serveHere(t, Options{})))
		exchange(t, conn, false, "all at once", cat(hello, requests), replies)
		conn = bare(t, proxyHere(t, serveHere(t, Options{})))
		for _, e := range legacyLayout {
			exchange(t, conn, slowly, e.name, e.request, e.reply)
		}
	}
}

// TestAPushWakesOne checks that a push wakes only one of the clients that wait for a queue, whether
// they use the store or a proxy. torch's client fails if it is woken and there is nothing to pop.
func TestAPushWakesOne(t *testing.T) {
	root := serveHere(t, Options{})
	first, second := proxyHere(t, root), proxyHere(t, root)
	woken := make(chan *Client, 6)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, at := range []*Store{first, first, second, root} {
		c := dialHere(t, at)
		all.Go(func() {
			if c.Wait(ctx, "q") == nil {
				woken <- c
			}
		})
	}
	waiting := func(n int) {
		t.Helper()
		eventually(t, root, func(st Status) bool {
			return n == len(slices.DeleteFunc(slices.Clone(st.Clients), func(c ClientStatus) bool { return c.Missing != 1 || c.Waiting[0] != "q" }))
		})
	}
	waiting(4)
	pusher := dialHere(t, second)
	for left := 3; left >= 2; left-- {
		ok(t, pusher.QueuePush(t.Context(), "q", b('1')))
		call((<-woken).QueuePop(t.Context(), "q"))(t, b('1'))
		waiting(left)
	}
	// If a client that was woken disconnects, another client gets the value.
	ok(t, pusher.QueuePush(t.Context(), "q", b('2')))
	c := <-woken
	c.Close()
	call((<-woken).QueuePop(t.Context(), "q"))(t, b('2'))
	cancel()
	all.Wait()
	call(pusher.QueueLen(t.Context(), "q"))(t, 0)
}

// TestOneConnectionForEachProxy checks that the store knows each client of a proxy, with its
// process and its wait, although the proxy has only one connection.
func TestOneConnectionForEachProxy(t *testing.T) {
	root := serveHere(t, Options{MaxClients: func() int { return 1 }})
	proxy := proxyHere(t, root)
	var done sync.WaitGroup
	for i := range 3 {
		c := dialHere(t, proxy)
		done.Go(func() {
			if err := c.Wait(t.Context(), "there", fmt.Sprint("late", i/2)); err != nil {
				t.Error(err)
			}
		})
	}
	setter := dialHere(t, proxy)
	ok(t, setter.Set(t.Context(), "there", nil))
	st := eventually(t, root, func(st Status) bool {
		n := 0
		for _, c := range st.Clients {
			if c.Missing == 1 && c.PID > 0 && c.Peer.Addr() == netip.MustParseAddr("127.0.0.1") && c.Waiting[0][:4] == "late" && !c.Since.IsZero() {
				n++
			}
		}
		return n == 3 && len(st.Clients) == 4
	})
	for _, c := range st.Clients {
		if !slices.ContainsFunc(proxy.Status().Clients, func(o ClientStatus) bool { return o.Peer == c.Peer && o.PID == c.PID }) {
			t.Errorf("the store knows of %+v, the proxy does not", c)
		}
	}
	ok(t, setter.MultiSet(t.Context(), map[string][]byte{"late0": nil, "late1": nil}))
	done.Wait()
	proxy.Close()
	eventually(t, root, func(st Status) bool { return len(st.Clients) == 0 && st.Keys == 3 })
}

// TestFailedRequestsOfAProxysClient checks that a failed request disconnects only its own client.
// The proxy's other clients notice nothing.
func TestFailedRequestsOfAProxysClient(t *testing.T) {
	warned := make(complaints, 8)
	root := serveHere(t, Options{MaxBytes: 10 << 20})
	proxy := serveHere(t, Options{Root: root.Addr(), Warn: func(err error) { warned <- err }})
	c, ctx := dialHere(t, proxy), t.Context()
	ok(t, c.Set(ctx, "text", []byte("x")))
	call(c.Get(ctx, "text"))(t, []byte("x")) // before a request of another client
	for _, request := range [][]byte{
		cat(hello, b(4), str("/text"), le(1)),  // ADD
		cat(hello, b(18), str("/text"), le(1)), // BARRIER
	} {
		conn := bare(t, proxy)
		_, err := conn.Write(request)
		ok(t, err)
		disconnected(t, conn)
		warned.next(t, `"text", whose value is not a number`, conn.LocalAddr().String())
	}
	long := cat(b(1), str("/k"), str(string(make([]byte, 7<<20))))
	conn := bare(t, proxy)
	_, _ = conn.Write(cat(hello, long, bytes.Replace(long, []byte("/k"), []byte("/l"), 1))) // the connection may be closed before the end
	disconnected(t, conn)
	warned.next(t, "the store is full", conn.LocalAddr().String())
	call(c.Get(ctx, "text"))(t, []byte("x"))
}

// TestMoreThanARound fetches too many values for one round of a proxy, and long values.
func TestMoreThanARound(t *testing.T) {
	root := serveHere(t, Options{})
	proxy := proxyHere(t, root)
	setter, c := dialHere(t, proxy), dialHere(t, proxy)
	var keys []string
	var want [][]byte
	for i := range protocol.MaxRound/protocol.MaxValue + 2 {
		keys = append(keys, fmt.Sprint("key", i))
		want = append(want, bytes.Repeat([]byte{byte(i)}, protocol.MaxValue-i))
		ok(t, setter.Set(t.Context(), keys[i], want[i]))
	}
	for range 2 {
		got, err := c.MultiGet(t.Context(), keys...)
		if err != nil || !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%d of %d values came, or wrong ones: %v", len(got), len(want), err)
		}
	}
}

// TestTheCacheIsBounded checks that the cache keeps the newest values within its bound.
func TestTheCacheIsBounded(t *testing.T) {
	c := newCache()
	for i := range 200 {
		c.put(&cachedValue{key: fmt.Sprint(i), frame: make(protocol.Frame, maxCachedValue/2)})
	}
	c.put(&cachedValue{key: "0", frame: make(protocol.Frame, 9)})
	c.put(&cachedValue{key: "long", frame: make(protocol.Frame, maxCachedValue+1)})
	sum := 0
	for key, k := range c.values {
		sum += cost(key, k.frame)
	}
	if c.bytes != sum || sum > maxCached || sum < maxCached-maxCachedValue || len(c.values) != c.order.Len() || c.values["long"] != nil || c.values["199"] == nil {
		t.Errorf("it has %d bytes in %d of %d values, and says %d", sum, len(c.values), c.order.Len(), c.bytes)
	}
}

// TestTheEndOfTheStore checks that the end of a store ends its proxies. A proxy warns if it has
// clients.
func TestTheEndOfTheStore(t *testing.T) {
	warned := make(complaints, 8)
	root := serveHere(t, Options{})
	proxy := serveHere(t, Options{Root: root.Addr(), Warn: func(err error) { warned <- err }})
	quiet := serveHere(t, Options{Root: root.Addr(), Warn: func(err error) { t.Error(err) }})
	c := dialHere(t, proxy)
	ok(t, c.Set(t.Context(), "k", nil))
	waited := make(chan error, 1)
	go func() { waited <- c.Wait(t.Context(), "never") }()
	eventually(t, root, func(st Status) bool { return len(st.Clients) == 1 && st.Clients[0].Missing == 1 })
	root.Close()
	if err := <-waited; err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait at a proxy whose store has ended: %v", err)
	}
	warned.next(t, "the proxy at "+proxy.Addr().String()+" must end (open connections: 1)", root.Addr().String(), "it has ended")
	for _, s := range []*Store{proxy, quiet} {
		for range s.Changes() { // the loop ends with the proxy
		}
		if _, err := net.Dial("tcp4", s.Addr().String()); err == nil {
			t.Error("a proxy without a store takes clients")
		}
	}
}

// TestNoStoreToStandFor starts a proxy for an address at which no server listens, or a server of
// another kind.
func TestNoStoreToStandFor(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	ok(t, err)
	other := addrPort(l.Addr())
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			defer c.Close()
			_, _ = c.Read(make([]byte, 1))
		}
		l.Close()
	}()
	for range 2 {
		warned := make(complaints, 8)
		o := warned.options()
		o.Root = other
		proxy := serveHere(t, o)
		conn, err := net.Dial("tcp4", proxy.Addr().String())
		if err == nil {
			disconnected(t, conn)
			conn.Close()
		}
		for range proxy.Changes() { // the proxy ends
		}
	}
	silent, err := net.Listen("tcp4", "127.0.0.1:0")
	ok(t, err)
	defer silent.Close()
	warned := make(complaints, 8)
	proxy := serveHere(t, Options{Root: addrPort(silent.Addr()), Warn: func(err error) { warned <- err }, Patience: 3 * time.Second})
	disconnected(t, bare(t, proxy))
	warned.next(t, "it does not answer")
}

// TestProxiesOfProxies checks that such proxies fail: a proxy cannot give another proxy the store's
// promises.
func TestProxiesOfProxies(t *testing.T) {
	warned := make(complaints, 8)
	proxy := serveHere(t, Options{Root: serveHere(t, Options{}).Addr(), Warn: func(err error) { warned <- err }})
	second := proxyHere(t, proxy)
	for range second.Changes() { // the proxy ends
	}
	warned.next(t, "it sent 103, which is no request")
}
