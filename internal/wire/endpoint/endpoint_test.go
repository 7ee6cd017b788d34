package endpoint_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/wire/endpoint"
	"github.com/golaunch/golaunch/internal/wire/mtls"
)

var (
	mine   = strings.Repeat("a", endpoint.KeySize)
	theirs = strings.Repeat("b", endpoint.KeySize)
)

func open(t *testing.T, token mtls.Token) (d *endpoint.Endpoint, addr string) {
	t.Helper()
	d, err := endpoint.Open(endpoint.Options{
		UID: os.Geteuid(), GID: os.Getegid(), Addr: netip.MustParseAddr("127.0.0.1"), Ports: ports.Range{First: 18020, Last: 18040},
		TLS: mtls.Server(token, mtls.Identity{Node: "n1"}), Warn: func(err error) { t.Error(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(d.Path()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left: %v", err)
		}
	})
	at, err := d.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if at.Port() < 18020 || at.Port() > 18040 {
		t.Errorf("it listens at %v, which is not in its range", at)
	}
	return d, at.String()
}

// frame is a worker's greeting.
func frame(key string) []byte {
	body, _ := json.Marshal(map[string]any{"key": key, "rank": 3})
	head := make([]byte, 24)
	head[0], head[1] = 1, 1
	binary.LittleEndian.PutUint64(head[16:], uint64(len(body)))
	return append(head, body...)
}

// come connects a worker.
func come(t *testing.T, d *endpoint.Endpoint, text []byte) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", d.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Write(text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// talk sends a message in each direction.
func talk(t *testing.T, worker, controller net.Conn) {
	t.Helper()
	_ = controller.SetDeadline(time.Now().Add(time.Minute))
	for _, size := range []int{1, 100, 3 << 20} {
		for _, ends := range [][2]net.Conn{{worker, controller}, {controller, worker}} {
			text := bytes.Repeat([]byte{7}, size)
			sent := make(chan error, 1)
			go func() {
				_, err := ends[0].Write(text)
				sent <- err
			}()
			got := make([]byte, size)
			if _, err := io.ReadFull(ends[1], got); err != nil || !bytes.Equal(got, text) {
				t.Fatalf("%d bytes: %v", size, err)
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestMeet(t *testing.T) {
	token := mtls.NewToken()
	for name, client := range map[string]mtls.Token{"the cluster's": token, "a submitter's": token.Submit()} {
		for _, first := range []string{"worker", "controller"} {
			t.Run(fmt.Sprintf("%s token, the %s first", name, first), func(t *testing.T) {
				d, addr := open(t, token)
				var w net.Conn
				if first == "worker" {
					w = come(t, d, frame(mine))
				}
				met := make(chan net.Conn, 1)
				go func() {
					conn, said, taken, err := endpoint.Dial(t.Context(), addr, mtls.Client(client, mtls.Identity{}), mine)
					if err != nil || !bytes.Equal(said, frame(mine)) || taken() != nil {
						t.Errorf("%q, %v", said, err)
					}
					met <- conn
				}()
				if first == "controller" {
					w = come(t, d, frame(mine))
				}
				c := <-met
				defer c.Close()
				talk(t, w, c)
				w.Close()
				if _, err := c.Read(make([]byte, 1)); err == nil {
					t.Error("the controller does not learn that the worker is gone")
				}
			})
		}
	}
}

// TestOthers checks that a client with another key or token, or with a message that workers do not
// send, is refused.
func TestOthers(t *testing.T) {
	token := mtls.NewToken()
	d, addr := open(t, token)
	w := come(t, d, frame(mine))
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error, 1)
	go func() {
		_, _, _, err := endpoint.Dial(ctx, addr, mtls.Client(token, mtls.Identity{}), theirs)
		waits <- err
	}()
	if _, _, _, err := endpoint.Dial(t.Context(), addr, mtls.Client(mtls.NewToken(), mtls.Identity{}), mine); err == nil {
		t.Error("another token is let in")
	}
	plain, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := plain.Write([]byte(mine)); err != nil {
		t.Fatal(err)
	}
	_ = plain.SetDeadline(time.Now().Add(time.Minute))
	if said, err := io.ReadAll(plain); bytes.Contains(said, []byte("rank")) || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a client without TLS gets %q, %v", said, err)
	}
	long := frame(mine)
	binary.LittleEndian.PutUint64(long[16:], 1<<40)
	for name, text := range map[string][]byte{
		"noise": bytes.Repeat([]byte{0xff}, 100), "a long greeting": long, "a short key": frame("a"), "HTTP": []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
	} {
		if said, err := io.ReadAll(come(t, d, text)); len(said) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %q, %v", name, said, err)
		}
	}
	cancel()
	if err := <-waits; err == nil {
		t.Error("a controller with another key has met a worker")
	}
	c, _, taken, err := endpoint.Dial(t.Context(), addr, mtls.Client(token, mtls.Identity{}), mine)
	if err != nil || taken() != nil {
		t.Fatal(err)
	}
	defer c.Close()
	talk(t, w, c)
}

// TestAControllerThatHasGone checks that a controller's end does not end a waiting worker.
func TestAControllerThatHasGone(t *testing.T) {
	token := mtls.NewToken()
	d, addr := open(t, token)
	for range 3 {
		conn, err := tls.Dial("tcp", addr, withProtocol(mtls.Client(token, mtls.Identity{})))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(mine)); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	w := come(t, d, frame(mine))
	c, _, taken, err := endpoint.Dial(t.Context(), addr, mtls.Client(token, mtls.Identity{}), mine)
	if err != nil || taken() != nil {
		t.Fatal(err)
	}
	defer c.Close()
	talk(t, w, c)
}

// TestControllersThatWait checks that few controllers can wait. Beyond them, one connection is
// closed with its descriptor.
func TestControllersThatWait(t *testing.T) {
	token := mtls.NewToken()
	d, addr := open(t, token)
	ended := make(chan error, 65)
	for range 65 {
		conn, err := tls.Dial("tcp", addr, withProtocol(mtls.Client(token, mtls.Identity{})))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte(theirs)); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := conn.Read(make([]byte, 1))
			ended <- err
		}()
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("all of them wait")
	}
	w := come(t, d, frame(mine))
	c, _, taken, err := endpoint.Dial(t.Context(), addr, mtls.Client(token, mtls.Identity{}), mine)
	if err != nil || taken() != nil {
		t.Fatal(err)
	}
	defer c.Close()
	talk(t, w, c)
}

func withProtocol(config *tls.Config) *tls.Config {
	config.NextProtos = []string{"golaunch-endpoint/3"}
	return config
}

func TestPermissions(t *testing.T) {
	d, _ := open(t, mtls.NewToken())
	for path, want := range map[string]os.FileMode{d.Path(): 0o600, strings.TrimSuffix(d.Path(), "/endpoint"): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}
