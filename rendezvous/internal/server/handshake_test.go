package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/wire/mtls"
)

var token = mtls.NewToken()

func clientTLS() *tls.Config { return mtls.Client(token, mtls.Identity{Node: "n1"}) }

// TestAbandonedHandshake checks that a peer that has given up causes neither a handshake nor a
// warning.
func TestAbandonedHandshake(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, waits := range []bool{true, false} {
		warned := make(chan error, 1)
		creds := transportCredentials(t.Context(), mtls.Server(token, mtls.Identity{}), newRefusals(func(err error) { warned <- err }), nil)
		slots := creds.(handshakes).slots
		for range cap(slots) {
			slots <- struct{}{}
		}
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		conn, err := listener{l}.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		greeted := make(chan error, 1)
		go func() { greeted <- tls.Client(client, clientTLS()).Handshake() }()
		awaitHello(t, conn.(*Conn).Conn.(*net.TCPConn))
		if !waits {
			client.(*net.TCPConn).CloseWrite()
		}
		served := make(chan error, 1)
		go func() { _, _, err := creds.ServerHandshake(conn); served <- err }()
		for len(slots) == cap(slots) {
			<-slots
		}
		if err := <-served; waits != (err == nil) || !waits && !errors.Is(err, errAbandoned) {
			t.Errorf("waits (%v): %v", waits, err)
		}
		conn.Close()
		if err := <-greeted; waits != (err == nil) {
			t.Errorf("waits (%v) gets %v", waits, err)
		}
		select {
		case err := <-warned:
			t.Errorf("waits (%v): warned of %v", waits, err)
		default:
		}
	}
}

// awaitHello waits until a peer has sent something. It does not read the data.
func awaitHello(t *testing.T, conn *net.TCPConn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Read(func(fd uintptr) bool {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return n > 0 || err != nil && err != unix.EAGAIN
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestVotersGoFirst checks that an election does not wait for agents' handshakes.
func TestVotersGoFirst(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	creds := transportCredentials(t.Context(), mtls.Server(token, mtls.Identity{}), newRefusals(func(err error) { t.Error(err) }), nil)
	slots := creds.(handshakes).slots
	for range cap(slots) {
		slots <- struct{}{}
	}
	for range 2 * maxVoterHandshakes { // each frees its slot
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn, err := listener{l}.Accept()
		if err != nil {
			t.Fatal(err)
		}
		greeted := make(chan error, 1)
		secure := tls.Client(client, VoterTLS(clientTLS()))
		go func() { greeted <- secure.Handshake() }()
		_, _, err = creds.ServerHandshake(conn)
		if err := errors.Join(err, <-greeted); err != nil || secure.ConnectionState().NegotiatedProtocol != "h2" {
			t.Fatal(fmt.Sprint(err, secure.ConnectionState().NegotiatedProtocol))
		}
		client.Close()
		conn.Close()
	}
	if len(slots) != cap(slots) {
		t.Error("they have taken the slots of agents")
	}
}

func TestRefusalsAreBounded(t *testing.T) {
	a := newRefusals(nil)
	now := time.Now()
	told := 0
	for i := range 3 * maxRefusals {
		for range 2 {
			if a.due(fmt.Sprintf("10.0.%d.%d", i/256, i%256), now) {
				told++
			}
		}
	}
	if told != maxRefusals || len(a.warned) != maxRefusals {
		t.Errorf("%d lines, %d machines", told, len(a.warned))
	}
	if later := now.Add(2 * time.Minute); !a.due("10.0.0.1", later) || a.due("10.0.0.1", later) || len(a.warned) != 1 {
		t.Errorf("%d machines after two minutes", len(a.warned))
	}
}
