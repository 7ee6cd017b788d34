package submitter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// socketID, diagRequest and diagAnswer are inet_diag_sockid, inet_diag_req_v2 and inet_diag_msg
// (sock_diag(7)). Ports and addresses are in network byte order.
type (
	socketID struct {
		Port, PeerPort [2]byte
		Addr, Peer     [16]byte
		Interface      uint32
		Cookie         [2]uint32
	}
	diagRequest struct {
		Family, Protocol, Extensions, _ uint8
		States                          uint32
		ID                              socketID
	}
	diagAnswer struct {
		Family, State, Timer, Retransmits uint8
		ID                                socketID
		Expires, Receive, Send            uint32
		UID, Inode                        uint32
	}
)

const (
	sockDiagByFamily = 20 // SOCK_DIAG_BY_FAMILY
	established      = 1  // TCP_ESTABLISHED
	noCookie         = ^uint32(0)
	// answerLimit bounds the wait for the kernel, which normally answers at once.
	answerLimit = 5 * time.Second
)

// Local returns the user of the socket at the other end of a TCP connection, if that end is on this
// machine and in this network namespace. A socket that is no longer connected has no user; the
// kernel would report root.
func Local(here, there net.Addr) (uid uint32, ok bool) {
	own, isTCP := here.(*net.TCPAddr)
	peer, isTCPToo := there.(*net.TCPAddr)
	if !isTCP || !isTCPToo {
		return 0, false
	}
	id, family, err := otherEnd(own.AddrPort(), peer.AddrPort())
	if err != nil {
		return 0, false
	}
	found, err := ask(diagRequest{Family: family, Protocol: unix.IPPROTO_TCP, States: 1 << established, ID: id})
	if err != nil || found.State != established || found.Inode == 0 || found.UID == overflow {
		return 0, false
	}
	// If there is no such socket, the kernel answers with a listening socket.
	if found.ID.Port != id.Port || found.ID.PeerPort != id.PeerPort || found.ID.Addr != id.Addr || found.ID.Peer != id.Peer {
		return 0, false
	}
	return found.UID, true
}

// otherEnd returns the socket that is connected from there to here.
func otherEnd(here, there netip.AddrPort) (id socketID, family uint8, err error) {
	family = unix.AF_INET6
	from, to := there.Addr().Unmap(), here.Addr().Unmap()
	switch {
	case from.Is4() && to.Is4():
		family = unix.AF_INET
		*(*[4]byte)(id.Addr[:]), *(*[4]byte)(id.Peer[:]) = from.As4(), to.As4()
	case from.Is6() && to.Is6():
		id.Addr, id.Peer = from.As16(), to.As16()
	default:
		return id, 0, errors.New("two kinds of addresses")
	}
	if zone := there.Addr().Zone(); zone != "" {
		on, err := net.InterfaceByName(zone)
		if err != nil {
			return id, 0, err
		}
		id.Interface = uint32(on.Index)
	}
	binary.BigEndian.PutUint16(id.Port[:], there.Port())
	binary.BigEndian.PutUint16(id.PeerPort[:], here.Port())
	id.Cookie = [2]uint32{noCookie, noCookie}
	return id, family, nil
}

// ask asks the kernel for one socket.
func ask(q diagRequest) (found diagAnswer, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return found, err
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(answerLimit.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return found, err
	}
	var message bytes.Buffer
	header := unix.NlMsghdr{Len: uint32(unix.SizeofNlMsghdr + binary.Size(q)), Type: sockDiagByFamily, Flags: unix.NLM_F_REQUEST}
	_ = binary.Write(&message, binary.NativeEndian, header) // to memory
	_ = binary.Write(&message, binary.NativeEndian, q)
	if err := unix.Sendto(fd, message.Bytes(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return found, os.NewSyscallError("sendto", err)
	}
	answer := make([]byte, 4<<10)
	n, from, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return found, os.NewSyscallError("recvfrom", err)
	}
	if kernel, ok := from.(*unix.SockaddrNetlink); !ok || kernel.Pid != 0 {
		return found, errors.New("the answer is not from the kernel")
	}
	r := bytes.NewReader(answer[:n])
	if err := binary.Read(r, binary.NativeEndian, &header); err != nil {
		return found, err
	}
	if header.Type != sockDiagByFamily {
		return found, unix.ENOENT
	}
	return found, binary.Read(r, binary.NativeEndian, &found)
}
