package frame

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// pair returns both ends of a socket, one of each kind.
func pair(t *testing.T) (FD, *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[1]), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return FD(fds[0]), c.(*net.UnixConn)
}

func TestMessages(t *testing.T) {
	fd, conn := pair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	large := bytes.Repeat([]byte("x"), 8<<20) // more than a socket holds
	for _, way := range []struct{ from, to Socket }{{fd, Over(conn)}, {Over(conn), fd}} {
		sent := make(chan error, 1)
		go func() {
			sent <- errors.Join(Send(way.from, Words([]string{"one", "", "two"})), Send(way.from, nil, int(w.Fd()), int(w.Fd())), Send(way.from, large))
		}()
		body, fds, err := Receive(way.to, 100, 2)
		if want := []string{"one", "", "two"}; err != nil || len(fds) != 0 || !slices.Equal(Split(body), want) {
			t.Fatalf("%q, %v, %v", body, fds, err)
		}
		body, fds, err = Receive(way.to, 100, 2)
		if err != nil || len(fds) != 2 || len(body) != 0 {
			t.Fatalf("%q, %v, %v", body, fds, err)
		}
		if flags, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("a file has flags %d, %v", flags, err)
		}
		Close(fds)
		if body, _, err = Receive(way.to, len(large), 0); err != nil || !bytes.Equal(body, large) {
			t.Fatalf("%d bytes, %v", len(body), err)
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	if n, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a file is still open: %d, %v", n, err)
	}
}

func TestBadMessages(t *testing.T) {
	for name, c := range map[string]struct{ sent, want string }{
		"none":        {"", "EOF"},
		"half a head": {"\x00\x00", "unexpected EOF"},
		"half a body": {"\x00\x00\x00\x05abc", "unexpected EOF"},
		"too long":    {"\xff\xff\xff\xffabc", "a message of 4294967295 bytes, and 100 are allowed"},
	} {
		fd, conn := pair(t)
		if _, err := fd.Write([]byte(c.sent)); err != nil {
			t.Fatal(err)
		}
		unix.Close(int(fd))
		if body, _, err := Receive(Over(conn), 100, 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v, want %s", name, body, err, c.want)
		}
	}
}

// TestReset makes the peer end in the middle of a message with unread data, which resets the
// connection.
func TestReset(t *testing.T) {
	fd, conn := pair(t)
	defer unix.Close(int(fd))
	if err := errors.Join(Send(fd, []byte("unread")), write(conn, "\x00\x00\x00\x05abc"), conn.Close()); err != nil {
		t.Fatal(err)
	}
	if body, _, err := Receive(fd, 100, 1); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("%q, %v, want a reset", body, err)
	}
}

func write(to io.Writer, text string) error {
	_, err := io.WriteString(to, text)
	return err
}
