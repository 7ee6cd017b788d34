// Package frame carries messages with open files over a Unix stream socket.
//
// A message is the length of its body in four bytes, big endian, and the body. Its files come with
// the first byte. A body that is a list of words ends each of them in NUL.
package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"golang.org/x/sys/unix"
)

// Socket is a [net.UnixConn], or an [FD].
type Socket interface {
	io.ReadWriter
	ReadMsgUnix(b, oob []byte) (n, oobn, flags int, addr *net.UnixAddr, err error)
	WriteMsgUnix(b, oob []byte, addr *net.UnixAddr) (n, oobn int, err error)
}

// Send sends a message, with duplicates of files. One system call sends all of a small message, so
// that a receiver never finds a part of it.
func Send(s Socket, body []byte, fds ...int) error {
	message := append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	n, _, err := s.WriteMsgUnix(message, rights, nil)
	if err == nil && n < len(message) {
		_, err = s.Write(message[n:])
	}
	return err
}

// Receive receives a message of at most maxBody bytes with at most maxFiles files, which the caller
// must close. The error is [io.EOF] if the peer closed the socket between messages.
func Receive(s Socket, maxBody, maxFiles int) (body []byte, fds []int, err error) {
	defer func() {
		if err != nil {
			Close(fds)
			fds = nil
		}
	}()
	var head [4]byte
	var rights []byte
	if maxFiles > 0 {
		rights = make([]byte, unix.CmsgSpace(4*maxFiles))
	}
	n, nr, _, _, err := s.ReadMsgUnix(head[:], rights)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, nil, err
	}
	if messages, _ := unix.ParseSocketControlMessage(rights[:nr]); len(messages) == 1 {
		fds, _ = unix.ParseUnixRights(&messages[0]) // Send sends no other kind
	}
	if _, err := io.ReadFull(s, head[n:]); err != nil {
		return nil, fds, unexpected(err)
	}
	size := int(binary.BigEndian.Uint32(head[:]))
	if size > maxBody {
		return nil, fds, fmt.Errorf("a message of %d bytes, and %d are allowed", size, maxBody)
	}
	var text bytes.Buffer // which grows with what comes, not with what the peer announces
	if _, err := io.CopyN(&text, s, int64(size)); err != nil {
		return nil, fds, unexpected(err)
	}
	return text.Bytes(), fds, nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Words encodes words.
func Words(words []string) []byte {
	var body bytes.Buffer
	for _, w := range words {
		body.WriteString(w)
		body.WriteByte(0)
	}
	return body.Bytes()
}

// Split decodes words.
func Split(body []byte) []string {
	return strings.Split(strings.TrimSuffix(string(body), "\x00"), "\x00")
}

// Close closes descriptors.
func Close(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// FD is a blocking socket without Go's network poller, which costs a small process at its start.
type FD int

func (fd FD) Read(b []byte) (n int, err error) {
	n, _, _, _, err = fd.ReadMsgUnix(b, nil)
	if err == nil && n == 0 && len(b) > 0 {
		err = io.EOF
	}
	return max(n, 0), err // recvmsg returns -1 with an error, which io does not take
}

func (fd FD) Write(b []byte) (written int, err error) {
	for written < len(b) && err == nil {
		var n int
		n, _, err = fd.WriteMsgUnix(b[written:], nil, nil)
		written += max(n, 0)
	}
	return written, err
}

// ReadMsgUnix is [net.UnixConn]'s; n is 0 at the end.
func (fd FD) ReadMsgUnix(b, oob []byte) (n, oobn, flags int, addr *net.UnixAddr, err error) {
	err = unix.EINTR
	for err == unix.EINTR {
		n, oobn, flags, _, err = unix.Recvmsg(int(fd), b, oob, unix.MSG_CMSG_CLOEXEC)
	}
	return n, oobn, flags, nil, err
}

// WriteMsgUnix is [net.UnixConn]'s.
func (fd FD) WriteMsgUnix(b, oob []byte, _ *net.UnixAddr) (n, oobn int, err error) {
	err = unix.EINTR
	for err == unix.EINTR {
		n, err = unix.SendmsgN(int(fd), b, oob, nil, unix.MSG_NOSIGNAL)
	}
	return n, len(oob), err
}
