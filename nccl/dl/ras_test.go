package dl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// listen runs script for each connection, in a goroutine of its own, and closes the connection when
// script returns. It returns the address at which it listens.
func listen(t *testing.T, script func(net.Conn, *bufio.Scanner)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				script(conn, bufio.NewScanner(conn))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return l.Addr().String()
}

// service stands for the RAS service: it answers lines as rasClientEventLoop in
// src/ras/client_support.cc does.
type service struct {
	// json says that the service can send JSON, as since NCCL 2.28.7.
	json bool
	// text, verbose and object are the reports in the three formats. heard gets the commands that
	// the service has received.
	text, verbose, object string
	heard                 chan string
}

func (s service) serve(conn net.Conn, lines *bufio.Scanner) {
	object := false
	for lines.Scan() {
		s.heard <- lines.Text()
		command := strings.ToLower(lines.Text())
		reply := "OK\n"
		switch {
		case strings.HasPrefix(command, "client protocol "):
			reply = "SERVER PROTOCOL 2\n"
		case strings.HasPrefix(command, "timeout "):
		case s.json && command == "set format json":
			object = true
		case command == "status" && object:
			reply = s.object
		case command == "status":
			reply = s.text
		case command == "verbose status":
			reply = s.verbose
		default:
			reply = "ERROR: Unknown command " + lines.Text() + "\n"
		}
		_, _ = io.WriteString(conn, reply)
		if strings.HasSuffix(command, "status") {
			return
		}
	}
}

func dial(t *testing.T, addr string) *Client {
	t.Helper()
	c, err := Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestText(t *testing.T) {
	s := service{text: "NCCL version 2.24.3\nCommunicators... (0.00s)\n", verbose: "all of it\n", heard: make(chan string, 3)}
	addr := listen(t, s.serve)
	for _, c := range []struct {
		wait    time.Duration
		verbose bool
		want    string
		heard   []string
	}{
		{5 * time.Second, false, s.text, []string{"TIMEOUT 5", "STATUS"}},
		{1001 * time.Millisecond, true, s.verbose, []string{"TIMEOUT 2", "VERBOSE STATUS"}},
		{-time.Hour, false, s.text, []string{"TIMEOUT 1", "STATUS"}},
	} {
		text, err := dial(t, addr).Text(t.Context(), c.wait, c.verbose)
		if err != nil || text != c.want {
			t.Errorf("text %q, %v", text, err)
		}
		for _, want := range append([]string{"CLIENT PROTOCOL 2"}, c.heard...) {
			if heard := <-s.heard; heard != want {
				t.Errorf("got %q, want %q", heard, want)
			}
		}
	}
}

func TestDialFails(t *testing.T) {
	for name, c := range map[string]struct{ says, want string }{
		"early close": {"", "unexpected EOF"},
		"half a line": {"SERVER PROTO", "unexpected EOF"},
		"web server":  {"HTTP/1.1 400 Bad Request\r\n", `it said "HTTP/1.1 400 Bad Request"`},
		"binary":      {strings.Repeat("\x00\xff", 1<<16), "buffer full"},
		"long line":   {strings.Repeat("x", 1000) + "\n", `it said "` + strings.Repeat("x", 80) + `"`},
	} {
		t.Run(name, func(t *testing.T) {
			addr := listen(t, func(conn net.Conn, lines *bufio.Scanner) {
				lines.Scan()
				_, _ = io.WriteString(conn, c.says)
			})
			if _, err := Dial(t.Context(), addr); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestDialWithoutAListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := Dial(t.Context(), l.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("error %v", err)
	}
}

// The kernel accepts connections even for a stopped process, which then does not answer.
func TestDialSilence(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the user left")
	addr := listen(t, func(_ net.Conn, lines *bufio.Scanner) {
		for lines.Scan() {
			cancel(why)
		}
	})
	if _, err := Dial(ctx, addr); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
	if _, err := Dial(ctx, addr); err == nil {
		t.Error("dialled after the user left")
	}
}

func TestSilenceEnds(t *testing.T) {
	for name, c := range map[string]struct {
		// answers is how many lines the service answers before it stops answering.
		answers int
		want    time.Duration
	}{
		"command": {0, patience},
		"report":  {1, 3*time.Second + extra + patience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				go func() {
					lines := bufio.NewScanner(far)
					for i := 0; lines.Scan(); i++ {
						if i < c.answers {
							_, _ = io.WriteString(far, "OK\n")
						}
					}
				}()
				client, began := &Client{addr: "pipe", conn: near, in: bufio.NewReader(near)}, time.Now()
				_, err := client.Text(t.Context(), 3*time.Second, false)
				if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took != c.want {
					t.Errorf("after %v: %v", took, err)
				}
				client.Close()
			})
		})
	}
}

func TestLateCommands(t *testing.T) {
	for name, c := range map[string]struct{ says, want string }{
		"refusal":     {"ERROR: Invalid timeout value 1\n", `for TIMEOUT 1: it said "ERROR: Invalid timeout value 1"`},
		"early close": {"", "for TIMEOUT 1: unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			addr := listen(t, func(conn net.Conn, lines *bufio.Scanner) {
				lines.Scan()
				_, _ = io.WriteString(conn, "SERVER PROTOCOL 3\n")
				lines.Scan()
				_, _ = io.WriteString(conn, c.says)
			})
			text, err := dial(t, addr).Text(t.Context(), 0, false)
			if text != "" || err == nil || !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("text %q, %v", text, err)
			}
		})
	}
}

// asked returns a client of a service that calls answer when it is asked for a report.
func asked(t *testing.T, answer func(net.Conn)) *Client {
	return dial(t, listen(t, func(conn net.Conn, lines *bufio.Scanner) {
		for _, reply := range []string{"SERVER PROTOCOL 2\n", "OK\n"} {
			lines.Scan()
			_, _ = io.WriteString(conn, reply)
		}
		lines.Scan()
		answer(conn)
	}))
}

func TestTextIsCutOff(t *testing.T) {
	const half = "NCCL version 2.30.7\n\nCommunicators..."
	for _, said := range []string{"", half} {
		c := asked(t, func(conn net.Conn) { _, _ = io.WriteString(conn, said) })
		if text, err := c.Text(t.Context(), 0, false); text != said || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("text %q, %v", text, err)
		}
	}
	c := asked(t, func(conn net.Conn) {
		_, _ = io.WriteString(conn, half)
		_ = conn.(*net.TCPConn).SetLinger(0)
	})
	if text, err := c.Text(t.Context(), 0, false); !strings.HasPrefix(half, text) || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("text %q, %v", text, err)
	}
}

func TestTextIsEndless(t *testing.T) {
	line := []byte(strings.Repeat("x", 1<<16-1) + "\n")
	c := asked(t, func(conn net.Conn) {
		for {
			if _, err := conn.Write(line); err != nil {
				return
			}
		}
	})
	text, err := c.Text(t.Context(), time.Minute, false)
	if len(text) != largest || err == nil || !strings.Contains(err.Error(), fmt.Sprint(largest>>20, " MiB")) {
		t.Errorf("text of %d bytes, %v", len(text), err)
	}
	// The server writes until the client closes the connection.
	c.Close()
}

func TestTextIsGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the user left")
	c := asked(t, func(conn net.Conn) {
		_, _ = io.WriteString(conn, "Communicators...")
		cancel(why)
		_, _ = io.Copy(io.Discard, conn)
	})
	if text, err := c.Text(ctx, time.Hour, false); !strings.HasPrefix("Communicators...", text) || !errors.Is(err, why) {
		t.Errorf("text %q, %v", text, err)
	}
	if text, err := c.Text(t.Context(), 0, false); !errors.Is(err, net.ErrClosed) {
		t.Errorf("then %q, %v", text, err)
	}
}
