package rendezvous

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/wiretest"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

var token = mtls.NewToken()

// head returns a coordinator on a real socket with TLS. Its warnings go to a channel.
func head(t testing.TB, nodes int) (c *Coordinator, target string, warnings chan string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	warnings = make(chan string, 16)
	s := one(nodes)
	c = NewCoordinator(Config{Job: &s, Warn: func(err error) { warnings <- err.Error() }})
	ran, served := make(chan struct{}), make(chan error, 1)
	go func() { served <- c.Serve(l, mtls.Server(token, mtls.Identity{Job: "j1"})) }()
	go func() {
		defer close(ran)
		c.Run(context.Background())
	}()
	t.Cleanup(func() {
		c.Cancel(130, "the test is over")
		<-ran
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return c, l.Addr().String(), warnings
}

func client1(token mtls.Token, name string) *tls.Config {
	return mtls.Client(token, mtls.Identity{Node: name})
}

func TestJoinOverTLS(t *testing.T) {
	_, target, _ := head(t, 2)
	s, err := session.Join(t.Context(), session.Options{Target: target, TLS: client1(token, "n1"), Node: placement.Node{Name: "n1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close("")
	if s.Node.Addr != netip.MustParseAddr("127.0.0.1") || s.Job != "j1" || s.Lease != 15*time.Second {
		t.Errorf("%+v, job %s, lease %v", s.Node, s.Job, s.Lease)
	}
	_, err = session.Join(t.Context(), session.Options{Target: target, TLS: client1(token, "n1"), Node: node(2)})
	var r *session.RefusedError
	if !errors.As(err, &r) || r.Why != "node n2 shows a certificate of node n1" {
		t.Errorf("another node's certificate: %v", err)
	}
}

// hostOverTLS returns a cluster's coordinator on a real socket.
func hostOverTLS(t testing.TB, cfg Config, addr string) (target string, stop func()) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c := NewCoordinator(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- c.Serve(l, mtls.Server(token, mtls.Identity{})) }()
	go func() { _, err := c.Run(ctx); ended <- err }()
	return l.Addr().String(), func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	}
}

func TestClientWithAnotherToken(t *testing.T) {
	warnings := make(chan string, 16)
	target, stop := hostOverTLS(t, Config{Warn: func(err error) { warnings <- err.Error() }}, "127.0.0.1:0")
	defer stop()
	_, err := session.Connect(t.Context(), session.ClientOptions{Target: target, TLS: mtls.Client(mtls.NewToken(), mtls.Identity{})})
	if !errors.Is(err, mtls.ErrToken) {
		t.Errorf("%v", err)
	}
	if got := <-warnings; !strings.Contains(got, "it has another token") {
		t.Error(got)
	}
}

// TestSubmitToken checks that a client with the submit token can submit and watch, but can neither
// be a node nor drain one.
func TestSubmitToken(t *testing.T) {
	target, stop := hostOverTLS(t, Config{Lease: time.Hour}, "127.0.0.1:0")
	defer stop()
	config := mtls.Client(token.Submit(), mtls.Identity{Node: "n1"})
	c, err := session.Connect(t.Context(), session.ClientOptions{Target: target, TLS: config})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Submit(t.Context(), task("a", 1, 1)); err != nil {
		t.Error(err)
	}
	if j, err := c.Job(t.Context(), "a"); err != nil || j.ID != "a" {
		t.Errorf("%+v, %v", j, err)
	}
	const only = "a node or a coordinator needs the token of the cluster itself"
	var wrong *session.RequestError
	if _, err := c.Drain(t.Context(), "n1"); !errors.As(err, &wrong) || !strings.Contains(err.Error(), only) {
		t.Errorf("drain: %v", err)
	}
	var refused *session.RefusedError
	_, err = session.Join(t.Context(), session.Options{Target: target, TLS: config, Node: placement.Node{Name: "n1"}})
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), only) {
		t.Errorf("join: %v", err)
	}
	if jobs, err := c.Stop(t.Context(), "a", 130, "enough"); err != nil || len(jobs) != 1 {
		t.Errorf("stop: %v, %v", jobs, err)
	}
}

// TestClosedClientOverTLS checks that the coordinator does not wait for a client which closes its
// connection in order.
func TestClosedClientOverTLS(t *testing.T) {
	target, stop := hostOverTLS(t, Config{Lease: time.Hour}, "127.0.0.1:0")
	defer stop()
	connect := func() *session.Client {
		c, err := session.Connect(t.Context(), session.ClientOptions{Target: target, TLS: mtls.Client(token, mtls.Identity{})})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	owner, other := connect(), connect()
	defer other.Close()
	if _, err := owner.Submit(t.Context(), task("a", 1, 1)); err != nil {
		t.Fatal(err)
	}
	w, err := other.Watch(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	limit, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	defer context.AfterFunc(limit, w.Close)()
	for {
		u, err := w.Next(limit)
		if err != nil {
			t.Fatal(err)
		}
		if u.Result != nil {
			if u.Result.Code != codeOrphaned {
				t.Errorf("%+v", u.Result)
			}
			return
		}
	}
}

func TestStrangers(t *testing.T) {
	for _, c := range []struct {
		name string
		meet func(t *testing.T, target string)
		want string
	}{
		{"wrong token", func(t *testing.T, target string) {
			_, err := session.Join(t.Context(), session.Options{Target: target, TLS: client1(mtls.NewToken(), "n1"), Node: node(1)})
			if !errors.Is(err, mtls.ErrToken) || !strings.Contains(err.Error(), "the coordinator at "+target+" has another token") {
				t.Errorf("agent: %v", err)
			}
		}, "does not accept this coordinator: it has another token"},
		{"no TLS", func(t *testing.T, target string) {
			ctx, cancel := context.WithCancel(t.Context()) // once the warning has come
			joined := make(chan error, 1)
			go func() {
				_, err := session.Join(ctx, session.Options{Target: target, Node: node(1), Warn: func(error) {}})
				joined <- err
			}()
			t.Cleanup(func() {
				if cancel(); <-joined == nil {
					t.Error("joined without TLS")
				}
			})
		}, "speaks no TLS"},
		{"garbage", func(t *testing.T, target string) { say(t, target, "\x00\x01garbage\xff\xff\xff") }, "speaks no TLS"},
		{"port scan", func(t *testing.T, target string) { say(t, target, "") }, "closed the connection during the TLS handshake"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, target, warnings := head(t, 1)
			c.meet(t, target)
			if got := <-warnings; !strings.Contains(got, "the peer at 127.0.0.1:") || !strings.Contains(got, c.want) {
				t.Errorf("%s, want %q", got, c.want)
			}
		})
	}
}

// say sends text that is not TLS, and waits until the coordinator disconnects.
func say(t *testing.T, target, text string) {
	conn, err := net.Dial("tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the coordinator does not hang up")
	}
}

// TestHandshakesEnd checks that a handshake frees its slot, however it ends.
func TestHandshakesEnd(t *testing.T) {
	_, target, _ := head(t, 1)
	strange := client1(mtls.NewToken(), "n1")
	for range server.MaxHandshakes {
		if _, err := tls.Dial("tcp", target, strange); err == nil {
			t.Fatal("a stranger got in")
		}
	}
	conn, err := tls.Dial("tcp", target, client1(token, "n1"))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// TestASilentPeerDelaysNothing checks that a silent peer does not delay the end of the coordinator.
func TestASilentPeerDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, dial := wiretest.Pipe()
		c := NewCoordinator(Config{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- c.Serve(l, mtls.Server(token, mtls.Identity{})) }()
		go func() { _, err := c.Run(ctx); ended <- err }()
		conn, err := dial(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		synctest.Wait()
		at := time.Now()
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil || time.Since(at) > 0 {
			t.Errorf("%v after %v", err, time.Since(at))
		}
	})
}

func TestAgentMeetsNoCoordinator(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, "SSH-2.0-OpenSSH_9.2\r\n")
			defer conn.Close()
		}
	}()
	_, err = session.Join(t.Context(), session.Options{Target: l.Addr().String(), TLS: client1(token, "n1"), Node: node(1)})
	if !errors.Is(err, mtls.ErrNoTLS) {
		t.Errorf("%v", err)
	}
}

func TestServeWantsTLS(t *testing.T) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := NewCoordinator(Config{}).Serve(l, nil); err == nil || !strings.Contains(err.Error(), "other machines can reach that address") {
		t.Errorf("%v", err)
	}
}
