package submitter

import (
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestLocal connects as this user, and as another in a process of its own.
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
		// One that has closed its end is nobody's, and the kernel calls nobody root.
		client.Close()
		if uid, ok := Local(conn.LocalAddr(), conn.RemoteAddr()); ok {
			t.Errorf("%s: it is gone, and uid %d", to, uid)
		}
		// Nobody has ever connected from there, while somebody listens.
		if uid, ok := Local(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, l.Addr()); ok {
			t.Errorf("%s: nobody is uid %d", to, uid)
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
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
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
