package tcpstore

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
)

// crowd is many clients of a store, of which each is only a socket. One goroutine plays all of
// them, at little cost. They connect from many addresses, because one address has only some 28,000
// ports. They end with a reset, so that no connection stays in TIME_WAIT.
type crowd struct {
	t     testing.TB
	addr  netip.AddrPort
	epoll int
	fds   []int
	index map[int]int
	// near, if not nil, returns where a client finds the store, or a proxy of it.
	near func(i int) netip.AddrPort
	// legacy makes the clients speak like torch 1.13.
	legacy bool
}

// enoughOfReply is how much of a reply a step gets to see. A step sees only the beginning of a
// longer reply.
const enoughOfReply = 17

// window bounds the clients that are connecting. It is less than the shortest usual backlog.
const window = 128

var greet = binary.LittleEndian.AppendUint32(append(binary.LittleEndian.AppendUint32([]byte{protocol.OpValidate}, protocol.Magic), protocol.OpPing), 77)

// asLegacy returns requests of torch 2.2 or later in the form of torch 1.13, and the length of the
// reply.
func asLegacy(request []byte, want int) ([]byte, int) {
	if request[0] == protocol.OpValidate {
		return []byte{byte(bytes.IndexByte(legacy, protocol.OpNumKeys))}, 8
	}
	request = bytes.Clone(request)
	for rest := request; len(rest) > 0; {
		var r protocol.Incoming
		n, err := r.Scan(rest[0], rest)
		if n == 0 || err != nil {
			panic("a request in part")
		}
		rest[0] = byte(bytes.IndexByte(legacy, rest[0]))
		rest = rest[n:]
	}
	return request, want
}

func newCrowd(t testing.TB, addr netip.AddrPort) *crowd {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{t: t, addr: addr, epoll: epoll, index: map[int]int{}}
	t.Cleanup(func() { c.leave(); unix.Close(epoll) })
	return c
}

func (c *crowd) leave() {
	for _, fd := range c.fds {
		unix.Close(fd)
	}
	c.fds = nil
	clear(c.index)
}

func (c *crowd) connect() {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	i, to := len(c.fds), c.addr
	if c.near != nil {
		to = c.near(i)
	}
	for _, err := range []error{
		err,
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1),
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, byte(1 + i/5000), byte(1 + i%200)}}),
		unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}),
		unix.EpollCtl(c.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}),
	} {
		if err != nil {
			c.t.Fatalf("client %d cannot connect: %v", i, err)
		}
	}
	c.fds = append(c.fds, fd)
	c.index[fd] = i
}

// step returns what a client sends after its round-th reply, and the length of the reply to that.
// If it returns no request, the client is done.
type step func(i, round int, reply []byte) (request []byte, want int)

// play makes n clients take their steps. It connects missing clients, at most window at once.
func (c *crowd) play(n int, next step) {
	rounds, want, got := make([]int, n), make([]int, n), make([][]byte, n)
	started, greeted, ended := 0, 0, 0
	advance := func(i int) {
		for want[i] = 0; want[i] == 0; rounds[i]++ {
			request, length := next(i, rounds[i], got[i])
			if request == nil {
				ended++
				return
			}
			if c.legacy {
				request, length = asLegacy(request, length)
			}
			if _, err := unix.Write(c.fds[i], request); err != nil {
				c.t.Fatalf("client %d cannot send: %v", i, err)
			}
			want[i], got[i] = length, got[i][:0]
		}
	}
	events, buf := make([]unix.EpollEvent, 256), make([]byte, 1<<20)
	for ended < n {
		for ; started < n && started-greeted < window; started++ {
			if started == len(c.fds) {
				c.connect()
			}
			advance(started)
		}
		k, err := unix.EpollWait(c.epoll, events, 20000)
		if err == unix.EINTR {
			continue
		}
		if err != nil || k == 0 {
			c.t.Fatalf("%d of %d clients got no reply: %v", n-ended, n, err)
		}
		for _, e := range events[:k] {
			i := c.index[int(e.Fd)]
			r, err := unix.Read(int(e.Fd), buf)
			if err != nil || r == 0 {
				c.t.Fatalf("client %d was disconnected: %v", i, err)
			}
			if len(got[i])+r < want[i] || want[i] > enoughOfReply {
				want[i] -= r
			} else {
				got[i] = append(got[i], buf[:r]...)
				want[i] = 0
			}
			if want[i] <= 0 {
				if rounds[i] == 1 {
					greeted++
				}
				advance(i)
			}
		}
	}
}

// usage returns the memory in bytes and the processor time of a process group.
func usage(t testing.TB, group int) (resident int, busy time.Duration) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // the process has ended
		}
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // from the 3rd of proc(5) on
		number := func(i int) int { n, _ := strconv.Atoi(fields[i-3]); return n }
		if number(5) == group {
			resident += number(24) * os.Getpagesize()
			busy += time.Duration(number(14)+number(15)) * 10 * time.Millisecond // USER_HZ is 100
		}
	}
	return resident, busy
}
