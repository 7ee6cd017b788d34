package rendezvous

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/golaunch/golaunch/internal/wire/mtls"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/session"
)

// attacker has a valid certificate, but uses HTTP/2 in ways in which gRPC does not use it.
type attacker struct {
	*http2.Framer
	stream uint32
	// block are the headers of a call of Join.
	block []byte
}

func (a *attacker) open(end bool) error {
	a.stream += 2
	return a.WriteHeaders(http2.HeadersFrameParam{StreamID: a.stream, BlockFragment: a.block, EndHeaders: end})
}

// floods are messages that a server must withstand in any number.
var floods = map[string]func(*attacker) error{
	"rapid reset": func(a *attacker) error { // CVE-2023-44487
		if err := a.open(true); err != nil {
			return err
		}
		return a.WriteRSTStream(a.stream, http2.ErrCodeCancel)
	},
	"streams": func(a *attacker) error { return a.open(true) },
	"continuation": func(a *attacker) error { // CVE-2024-27316 and similar attacks
		if a.stream == 1 {
			return a.open(false)
		}
		return a.WriteContinuation(a.stream, false, bytes.Repeat([]byte{0x00, 1, 'x', 1, 'x'}, 1000))
	},
	"bombs": func(a *attacker) error { // headers of a few bytes that expand to many
		var bomb bytes.Buffer
		e := hpack.NewEncoder(&bomb)
		_ = e.WriteField(hpack.HeaderField{Name: "x", Value: string(make([]byte, 3000))}) // into memory
		a.stream += 2
		block := append(bomb.Bytes(), bytes.Repeat([]byte{0x80 | 62}, 10_000)...)
		return a.WriteHeaders(http2.HeadersFrameParam{StreamID: a.stream, BlockFragment: block, EndHeaders: true})
	},
	"ping":     func(a *attacker) error { return a.WritePing(false, [8]byte{}) },
	"settings": func(a *attacker) error { return a.WriteSettings() },
	"window":   func(a *attacker) error { return a.WriteWindowUpdate(0, 1) },
}

// flood opens one connection after another, and sends the messages of the function say over each,
// until over is closed. It reads either nothing or everything.
func flood(t *testing.T, target string, say func(*attacker) error, reads bool, over <-chan struct{}) (said int) {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "https"}, {":path", pb.Rendezvous_Join_FullMethodName}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // into memory
	}
	for {
		conn, err := tls.Dial("tcp", target, mtls.Client(token, mtls.Identity{}))
		if err != nil {
			t.Errorf("an attacker with a certificate is not let in: %v", err)
			return said
		}
		ended := make(chan struct{})
		go func() {
			select {
			case <-over:
			case <-ended:
			}
			conn.NetConn().Close()
		}()
		if reads {
			go io.Copy(io.Discard, conn)
		}
		_, err = conn.Write([]byte(http2.ClientPreface))
		a := &attacker{Framer: http2.NewFramer(conn, nil), stream: 1, block: block.Bytes()}
		for first := true; err == nil; first = false {
			if first {
				err = a.WriteSettings()
				continue
			}
			err = say(a)
			said++
		}
		close(ended)
		select {
		case <-over:
			return said
		default:
		}
	}
}

// TestFloods lets clients with valid certificates flood a coordinator in all ways at once.
// Meanwhile the coordinator must answer an agent's heartbeats, and the cost of the floods must be
// bounded.
func TestFloods(t *testing.T) {
	target, stop := hostOverTLS(t, Config{Warn: func(error) {}}, "127.0.0.1:0")
	defer stop()
	heard := make(chan struct{}, 100)
	s, err := session.Join(t.Context(), session.Options{
		Target: target, TLS: client1(token, "n1"), Node: node(1),
		Heard: func(_, _ time.Duration) { heard <- struct{}{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	goroutines, heap := runtime.NumGoroutine(), live()
	over := make(chan struct{})
	var attack sync.WaitGroup
	for name, say := range floods {
		for _, reads := range []bool{false, true} {
			attack.Go(func() { t.Logf("%s (reads: %t): %d", name, reads, flood(t, target, say, reads, over)) })
		}
	}
	for range 2 { // 5 s apart
		select {
		case <-heard:
		case <-s.Orders():
			t.Fatal(s.Err())
		}
		// While the garbage collector runs, streams of ended connections end late, and the
		// attackers open more. So the test counts only streams and memory that stay.
		var n int
		var b int64
		for range 1000 {
			n, b = runtime.NumGoroutine()-goroutines, live()-heap
			if n <= 600 && b <= 64<<20 { // 64 hellos for each of the four attackers that open streams, with two goroutines each
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Logf("%d goroutines and %d KiB more", n, b>>10)
		if n > 600 || b > 64<<20 {
			t.Errorf("%d goroutines and %d MiB more stay", n, b>>20)
		}
	}
	close(over)
	attack.Wait()
	s.Close("")
}

// live returns the size of the heap, in bytes.
func live() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// silent is how many silent connections the test opens. Both ends are in this process, and some
// machines permit a process only 20,000 files.
const silent = 9000

// TestSilentConnections opens thousands of silent connections, half of them with the first byte of
// a TLS hello. An agent can join meanwhile, and the coordinator soon closes each silent connection.
func TestSilentConnections(t *testing.T) {
	target, stop := hostOverTLS(t, Config{Warn: func(error) {}}, "127.0.0.1:0")
	defer stop()
	conns := make([]net.Conn, silent)
	for i := range conns {
		conn, err := net.Dial("tcp", target)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if i%2 == 0 {
			if _, err := conn.Write([]byte{22}); err != nil {
				t.Fatal(err)
			}
		}
		conns[i] = conn
	}
	s, err := session.Join(t.Context(), session.Options{Target: target, TLS: client1(token, "n1"), Node: node(1)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close("")
	for i, conn := range conns {
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil || isTimeout(err) {
			t.Fatalf("connection %d: %d bytes, %v", i, n, err)
		}
	}
	if s.Err() != nil {
		t.Error(s.Err())
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}
