package mtls

import (
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"
)

// again does an agent's handshake with a server, until the agent has the ticket.
func again(t *testing.T, server, client *tls.Config) (state tls.ConnectionState, err error) {
	t.Helper()
	l := bufconn.Listen(1 << 14)
	dialled := make(chan net.Conn, 1)
	go func() {
		conn, _ := l.Dial() // fails only once the listener is closed
		dialled <- conn
	}()
	theirs, _ := l.Accept()
	ours := <-dialled
	s := tls.Server(theirs, server)
	go func() {
		if s.Handshake() != nil {
			theirs.Close()
			return
		}
		s.Write([]byte("x"))
	}()
	conn, err := Handshake(t.Context(), ours, client)
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	ours.Close()
	theirs.Close()
	return s.ConnectionState(), err
}

// TestTickets follows an agent for days. Whenever the agent returns, it resumes its session with a
// cheap key exchange, with its own identity and a leaf that is at most a day old.
func TestTickets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := Client(alice, node)
		for i, after := range []time.Duration{0, time.Second, time.Hour, 11 * time.Hour, 13 * time.Hour, 25 * time.Hour, 100 * time.Hour} {
			time.Sleep(after)
			state, err := again(t, Server(alice, boss), client)
			if err != nil || state.DidResume != (i > 0) || (state.CurveID == tls.CurveP256) != (i > 0) {
				t.Fatalf("after %v more: %v, resumed: %v, by %v", after, err, state.DidResume, state.CurveID)
			}
			peer, err := Peer(state)
			if leaf := state.PeerCertificates[0]; err != nil || peer != node || time.Now().After(leaf.NotAfter) {
				t.Errorf("after %v more: peer %+v until %v, %v", after, peer, leaf.NotAfter, err)
			}
		}
	})
}

// TestTicketIsRefused: if an agent's ticket is refused, the agent completes no handshake without
// signatures or with the cheap key exchange. It makes a full handshake the next time.
func TestTicketIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := Client(alice, node)
		if _, err := again(t, Server(alice, boss), client); err != nil {
			t.Fatal(err)
		}
		state, _ := client.ClientSessionCache.Get("")
		cache := client.ClientSessionCache.(*tickets)
		forgetful := Server(alice, boss)
		forgetful.UnwrapSession = func([]byte, tls.ConnectionState) (*tls.SessionState, error) { return nil, nil }
		if _, err := again(t, forgetful, client); !errors.Is(err, errTicket) {
			t.Errorf("a ticket that is not taken: %v", err)
		}
		if state, err := again(t, forgetful, client); err != nil || state.DidResume || state.CurveID != tls.X25519MLKEM768 {
			t.Errorf("the next handshake: %v, resumed: %v, by %v", err, state.DidResume, state.CurveID)
		}
		// A ticket of another token, and a ticket whose leaf has expired.
		cache.Put("", state)
		if state, err := again(t, Server(bob, boss), client); err == nil {
			t.Errorf("another token takes the ticket: resumed %v", state.DidResume)
		}
		time.Sleep(drift + time.Second)
		cache.Put("", state)
		if state, err := again(t, Server(alice, boss), client); !errors.Is(err, errTicket) || state.DidResume {
			t.Errorf("the ticket of a leaf that has ended: %v, resumed: %v", err, state.DidResume)
		}
	})
}

// TestTicketKeys checks that the keys change each day. A coordinator has the keys of coordinators
// whose clocks differ by a day, and none that are older than a ticket may be.
func TestTicketKeys(t *testing.T) {
	const today = 20000
	now := alice.ticketKeys(today)
	knows := func(day int64) bool {
		for _, key := range now {
			if key == alice.ticketKeys(day)[0] {
				return true
			}
		}
		return false
	}
	for day, want := range map[int64]bool{today - 3: false, today - 2: true, today - 1: true, today: true, today + 1: true, today + 2: false} {
		if knows(day) != want {
			t.Errorf("knows the key of day %d: %v", day-today, !want)
		}
	}
	if alice.ticketKeys(today)[0] == bob.ticketKeys(today)[0] {
		t.Error("two tokens have one key")
	}
}
