package safefile

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// Peer is the process at the other end of a connection, as the kernel recorded it when the process
// connected or listened (unix(7), SO_PEERCRED).
func Peer(conn *net.UnixConn) (peer *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return peer, errors.Join(err, failed)
}
