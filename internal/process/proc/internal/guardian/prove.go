package guardian

import (
	"time"

	"golang.org/x/sys/unix"
)

// ProofLimit bounds the wait for peers to take the proof. After that, the kernel still delivers the
// proof. It is a variable for tests.
var ProofLimit = time.Second

// Prove ends sockets with a proof, and waits until their peers have ended them too. If a socket is
// closed earlier and then receives data, it resets the connection, and the proof may be lost.
func Prove(sockets []int, proof []byte) {
	fds := make([]unix.PollFd, len(sockets))
	for i, fd := range sockets {
		fds[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLOUT}
	}
	limit := time.Now().Add(ProofLimit)
	for left := len(fds); left > 0; {
		n, err := unix.Poll(fds, max(0, int(time.Until(limit).Milliseconds())))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil || n == 0:
			return
		}
		for i := range fds {
			switch f := &fds[i]; {
			case f.Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0:
				f.Fd = -1 // poll ignores it
				left--
			case f.Revents&unix.POLLOUT != 0:
				_ = unix.Send(int(f.Fd), proof, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) // without proof, a peer waits for the lease
				_ = unix.Shutdown(int(f.Fd), unix.SHUT_WR)
				f.Events = 0
			}
		}
	}
}
