package keeper

import (
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// TestClientsOfTheLargestJob checks that the clients of the largest job fit into an answer: 100,000
// ranks that wait for keys of any length.
func TestClientsOfTheLargestJob(t *testing.T) {
	clients := make([]tcpstore.ClientStatus, 100_000)
	keys := []string{strings.Repeat("k", 8<<10), "another"}
	for i := range clients {
		clients[i] = tcpstore.ClientStatus{
			Peer: netip.MustParseAddrPort("[fd00:1:2:3:4:5:6:7]:65535"), Spoke: true, PID: 1 << 22, Waiting: keys, Missing: 8, Since: time.Now(),
		}
	}
	body, err := json.Marshal(message{Do: doStatus, Seq: 1, Clients: shown(clients)})
	if err != nil || len(body) > maxMessage {
		t.Errorf("%d bytes: %v", len(body), err)
	}
}

// TestAnAnswerThatIsTooLong checks that the agent gets an error instead of an answer that is too
// long.
func TestAnAnswerThatIsTooLong(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*link
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		conn, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		ends[i] = &link{conn: conn.(*net.UnixConn)}
	}
	k := &keeper{link: ends[0]}
	k.answer(message{Do: doStatus, Seq: 7, from: ends[0]}, nil, message{Data: make([]byte, maxMessage)})
	m, _, err := ends[1].receive()
	if err != nil || m.Seq != 7 || !strings.Contains(m.Error, "too long") {
		t.Errorf("%+v, %v", m, err)
	}
}
