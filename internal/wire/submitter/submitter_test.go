package submitter

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/host/munge"
	"github.com/golaunch/golaunch/internal/testkit/slurmtest"
)

// TestLocal connects as this user and, in another process, as another user.
func TestLocal(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0", ":0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		port := l.Addr().(*net.TCPAddr).Port
		to := net.JoinHostPort(map[string]string{"127.0.0.1:0": "127.0.0.1", "[::1]:0": "::1", ":0": "127.0.0.1"}[at], itoa(port))
		client, err := net.Dial("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if uid, ok := Local(conn.LocalAddr(), conn.RemoteAddr()); !ok || uid != uint32(os.Getuid()) {
			t.Errorf("%s: %d, %v", to, uid, ok)
		}
		// A closed end has no owner, for which the kernel reports root.
		client.Close()
		if uid, ok := Local(conn.LocalAddr(), conn.RemoteAddr()); ok {
			t.Errorf("%s: it is gone, and uid %d", to, uid)
		}
		// No one has ever connected from there, although there is a listener.
		if uid, ok := Local(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, l.Addr()); ok {
			t.Errorf("%s: uid %d, want none", to, uid)
		}
		if os.Getuid() == 0 {
			another(t, l, to)
		}
	}
}

func itoa(port int) string { return (&net.TCPAddr{Port: port}).String()[1:] }

func another(t *testing.T, l net.Listener, to string) {
	t.Helper()
	host, port, _ := net.SplitHostPort(to)
	cmd := exec.Command("bash", "-c", "exec 3<>/dev/tcp/"+host+"/"+port+"; read -u 3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1234, Gid: 1234}, Pdeathsig: syscall.SIGKILL}
	cmd.Dir = "/"
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if uid, ok := Local(conn.LocalAddr(), conn.RemoteAddr()); !ok || uid != 1234 {
		t.Errorf("%s: %d, %v", to, uid, ok)
	}
	conn.Close()
	_ = cmd.Wait() // it has read nothing
}

// connected are the two ends of a TLS connection.
func connected(t *testing.T) (server, client tls.ConnectionState) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"head"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	known := x509.NewCertPool()
	known.AddCert(cert)
	a, b := net.Pipe()
	here := tls.Server(a, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	there := tls.Client(b, &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: known, ServerName: "head"})
	t.Cleanup(func() { a.Close(); b.Close() })
	shaken := make(chan error, 1)
	go func() { shaken <- here.HandshakeContext(t.Context()) }()
	must(t, there.HandshakeContext(t.Context()))
	must(t, <-shaken)
	return here.ConnectionState(), there.ConnectionState()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestACredential checks that a credential is valid for its connection, once, and that no other
// text is a credential.
func TestACredential(t *testing.T) {
	t.Setenv("SLURM_CONF", slurmtest.Munge(t))
	server, client := connected(t)
	seal := func() string {
		c, err := Seal(t.Context(), client)
		must(t, err)
		return c
	}
	c := seal()
	if uid, err := Open(t.Context(), server, c); err != nil || uid != uint32(os.Getuid()) {
		t.Errorf("%d, %v", uid, err)
	}
	if _, err := Open(t.Context(), server, c); err == nil || !strings.Contains(err.Error(), "Replayed") {
		t.Errorf("once more: %v", err)
	}
	other, _ := connected(t)
	if _, err := Open(t.Context(), other, seal()); !errors.Is(err, ErrElsewhere) {
		t.Errorf("on another connection: %v", err)
	}
	c, err := munge.Sign(t.Context(), "sealed for another purpose")
	must(t, err)
	if _, err := Open(t.Context(), server, c); !errors.Is(err, ErrElsewhere) {
		t.Errorf("of another purpose: %v", err)
	}
	if _, err := Open(t.Context(), tls.ConnectionState{}, seal()); err == nil {
		t.Error("without TLS")
	}
}
