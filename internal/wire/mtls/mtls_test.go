package mtls

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"
)

var (
	alice = Token{text: text}
	bob   = Token{text: text[1:] + "x"}
	node  = Identity{Node: "n1", Job: "train/7&x"}
	boss  = Identity{Node: "head"}
)

// shake runs both ends of a handshake, and then sends one byte each way. Only then does an agent
// learn that the coordinator refused it.
func shake(server, client *tls.Config) (state tls.ConnectionState, serverErr, clientErr error) {
	l := bufconn.Listen(1 << 14)
	dialled := make(chan net.Conn, 1)
	go func() {
		conn, _ := l.Dial() // fails only once the listener is closed
		dialled <- conn
	}()
	a, _ := l.Accept()
	b := <-dialled
	end := func(conn *tls.Conn) error {
		defer conn.NetConn().Close()
		conn.SetDeadline(time.Now().Add(time.Minute))
		if err := conn.Handshake(); err != nil {
			return err
		}
		if _, err := conn.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err
	}
	done := make(chan error, 1)
	s := tls.Server(a, server)
	go func() { done <- end(s) }()
	clientErr = end(tls.Client(b, client))
	serverErr = <-done
	return s.ConnectionState(), serverErr, clientErr
}

func TestHandshake(t *testing.T) {
	state, serr, cerr := shake(Server(alice, boss), Client(alice, node))
	if serr != nil || cerr != nil {
		t.Fatalf("server: %v, client: %v", serr, cerr)
	}
	if state.Version != tls.VersionTLS13 {
		t.Errorf("version %x", state.Version)
	}
	if peer, err := Peer(state); err != nil || peer != node {
		t.Errorf("peer %+v, %v, want %+v", peer, err, node)
	}
}

// TestResumed checks that an agent resumes its TLS session, with its identity, at another
// coordinator with the same token, but not at a coordinator with another token.
func TestResumed(t *testing.T) {
	client := Client(alice, node)
	for i, server := range []*tls.Config{Server(alice, boss), Server(alice, Identity{Node: "next"}), Server(alice, boss)} {
		state, serr, cerr := shake(server, client)
		if serr != nil || cerr != nil || state.DidResume != (i > 0) {
			t.Fatalf("handshake %d: server: %v, client: %v, resumed: %v", i, serr, cerr, state.DidResume)
		}
		if peer, err := Peer(state); err != nil || peer != node {
			t.Errorf("handshake %d: peer %+v, %v, want %+v", i, peer, err, node)
		}
	}
	if _, serr, cerr := shake(Server(bob, boss), client); serr == nil || cerr == nil {
		t.Errorf("with another token: server: %v, client: %v", serr, cerr)
	}
}

// TestResumedSubmitter checks that a ticket gives its holder no more rights than before.
func TestResumedSubmitter(t *testing.T) {
	client := Client(alice.Submit(), Identity{})
	for range 2 {
		state, serr, cerr := shake(Server(alice, boss), client)
		if peer, err := Peer(state); err != nil || serr != nil || cerr != nil || !peer.Submits {
			t.Fatalf("peer %+v, %v, server: %v, client: %v", peer, err, serr, cerr)
		}
	}
}

func TestSameAuthorityEverywhere(t *testing.T) {
	if !machines(alice).cert.Equal(machines(alice).cert) {
		t.Error("one token makes two authorities")
	}
	if machines(alice).cert.Equal(machines(bob).cert) {
		t.Error("two tokens make one authority")
	}
}

// TestSubmitToken checks that the holder is recognized as a submitter, verifies the coordinator,
// and cannot act as a coordinator or an agent.
func TestSubmitToken(t *testing.T) {
	submit, err := ParseToken(alice.Submit().Text() + "\n")
	if err != nil {
		t.Fatal(err)
	}
	state, serr, cerr := shake(Server(alice, boss), Client(submit, Identity{Job: "j", Submits: false}))
	if serr != nil || cerr != nil {
		t.Fatalf("server: %v, client: %v", serr, cerr)
	}
	if peer, err := Peer(state); err != nil || peer != (Identity{Job: "j", Submits: true}) {
		t.Errorf("peer %+v, %v", peer, err)
	}
	if submit.ID() != alice.ID() || submit.Submit() != submit {
		t.Errorf("%v of %v", submit, alice)
	}
	// With another cluster's submit token, both sides refuse.
	_, serr, cerr = shake(Server(bob, boss), Client(submit, node))
	if err := ExplainClient(cerr, "h:1", Client(submit, node)); !errors.Is(err, ErrToken) ||
		!strings.Contains(err.Error(), "("+bob.ID()+" there, "+alice.ID()+" here)") || serr == nil {
		t.Errorf("client: %v, server: %v", err, serr)
	}
	// The holder signs with its own key, as a coordinator.
	forged := Server(alice, boss)
	forged.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return submitters(submit).leaf(boss, x509.ExtKeyUsageServerAuth, role)
	}
	for name, victim := range map[string]Token{"an agent": alice, "another submitter": submit} {
		if _, _, cerr := shake(forged, Client(victim, node)); cerr == nil {
			t.Errorf("%s takes a submitter for the coordinator", name)
		}
	}
	// And as an agent, with the name of the agents' authority.
	forged = Client(alice, node)
	forged.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		key := submitters(submit).key
		return newAuthority(machineName+submit.ID(), key.Public().(ed25519.PublicKey), key, key).leaf(node, x509.ExtKeyUsageClientAuth)
	}
	if state, serr, _ := shake(Server(alice, boss), forged); serr == nil {
		t.Errorf("the coordinator takes a submitter for %v", state.PeerCertificates[0].Issuer)
	}
}

func TestRefused(t *testing.T) {
	old := Client(alice, node)
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	bare := Client(alice, node)
	bare.GetClientCertificate = nil
	agent := Server(alice, boss)
	agent.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return Client(alice, node).GetClientCertificate(nil)
	}
	coordinator := Client(alice, node)
	coordinator.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return Server(alice, boss).GetCertificate(nil)
	}
	strange := Client(alice, node)
	strange.InsecureSkipVerify = true
	strange.GetClientCertificate = Client(bob, node).GetClientCertificate
	for _, c := range []struct {
		name           string
		server, client *tls.Config
		want           string
		token          bool
	}{
		{"wrong token", Server(alice, boss), Client(bob, node), "does not accept this coordinator: it has another token", true},
		{"wrong token, agent goes on", Server(alice, boss), strange, "the peer at P has another token", true},
		{"no certificate", Server(alice, boss), bare, "didn't provide a certificate", false},
		{"agent's leaf as coordinator", agent, Client(alice, node), "does not accept this coordinator", true},
		{"coordinator's leaf as agent", Server(alice, boss), coordinator, "certificate for another role", false},
		{"TLS 1.2", Server(alice, boss), old, "", false},
	} {
		_, serr, cerr := shake(c.server, c.client)
		if serr == nil || cerr == nil {
			t.Errorf("%s: server %v, client %v, want both to fail", c.name, serr, cerr)
			continue
		}
		err := ExplainServer(serr, "P")
		if !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrToken) != c.token {
			t.Errorf("%s: server: %v, want %q", c.name, err, c.want)
		}
	}
	_, _, err := shake(Server(alice, boss), Client(bob, node))
	err = ExplainClient(err, "h:1", Client(bob, node))
	want := "the coordinator at h:1 has another token (" + alice.ID() + " there, " + bob.ID() + " here); copy ~/.golaunch/token"
	if !errors.Is(err, ErrToken) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("client: %v, want %s", err, want)
	}
	_, _, err = shake(agent, Client(alice, node))
	if err = ExplainClient(err, "h:1", Client(alice, node)); !strings.Contains(err.Error(), "shows a certificate for another role") {
		t.Errorf("client: %v", err)
	}
}

// TestWeeks checks that the configurations outlive the leaves that they make.
func TestWeeks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := Server(alice, boss), Client(alice, node)
		for range 3 {
			if _, serr, cerr := shake(server, client); serr != nil || cerr != nil {
				t.Fatalf("at %v: server: %v, client: %v", time.Now(), serr, cerr)
			}
			<-time.After(7 * 24 * time.Hour)
		}
	})
}

func TestClocksApart(t *testing.T) {
	for apart, ok := range map[time.Duration]bool{-23 * time.Hour: true, 23 * time.Hour: true, 25 * time.Hour: false} {
		client := Client(alice, node)
		client.Time = func() time.Time { return time.Now().Add(apart) }
		_, _, err := shake(Server(alice, boss), client)
		if (err == nil) != ok {
			t.Errorf("clocks %v apart: %v", apart, err)
		}
		if err != nil && !strings.Contains(ExplainClient(err, "h:1", Client(alice, node)).Error(), "clock of the coordinator at h:1") {
			t.Errorf("clocks %v apart: %v", apart, ExplainClient(err, "h:1", Client(alice, node)))
		}
	}
}

// TestStrangers has peers that are no part of golaunch.
func TestStrangers(t *testing.T) {
	for _, c := range []struct {
		name, says, want string
		noTLS            bool
	}{
		{"http", "GET / HTTP/1.1\r\n\r\n", "speaks no TLS; is it golaunch?", true},
		{"garbage", "\xff\x00\xff\x00\xff\x00\xff", "speaks no TLS", true},
		{"hangs up", "", "closed the connection during the TLS handshake", false},
	} {
		stranger := func(handshake func(net.Conn) error) error {
			ours, theirs := net.Pipe()
			defer ours.Close()
			go func() {
				defer theirs.Close()
				go io.Copy(io.Discard, theirs)
				theirs.Write([]byte(c.says))
			}()
			return handshake(ours)
		}
		config := Client(alice, node)
		err := stranger(func(conn net.Conn) error { return tls.Server(conn, Server(alice, boss)).Handshake() })
		server := ExplainServer(err, "P")
		err = stranger(func(conn net.Conn) error { return tls.Client(conn, config).Handshake() })
		client := ExplainClient(err, "P", config)
		for side, err := range map[string]error{"server": server, "client": client} {
			if !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrNoTLS) != c.noTLS {
				t.Errorf("%s, %s: %v, want %q", c.name, side, err, c.want)
			}
		}
	}
}

func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		defer theirs.Close()
		go io.Copy(io.Discard, theirs)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := ExplainClient(tls.Client(ours, Client(alice, node)).HandshakeContext(ctx), "h:1", Client(alice, node))
		if want := "the coordinator at h:1 did not finish the TLS handshake in time"; err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	})
}

// BenchmarkHandshake measures both ends of a handshake: the first of an agent, a resumed one, and a
// resumed one with the key exchange of [Handshake].
func BenchmarkHandshake(b *testing.B) {
	for _, c := range []struct {
		name    string
		resumes bool
		curves  []tls.CurveID
	}{{"first", false, nil}, {"resumed", true, nil}, {"resumed-classical", true, classical}} {
		b.Run(c.name, func(b *testing.B) {
			server, client := Server(alice, boss), Client(alice, node)
			if client.CurvePreferences = c.curves; !c.resumes {
				client.ClientSessionCache = nil
			}
			for b.Loop() {
				if _, serr, cerr := shake(server, client); serr != nil || cerr != nil {
					b.Fatal(serr, cerr)
				}
			}
		})
	}
}
