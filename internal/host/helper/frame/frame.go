// Package frame carries messages with open files over a Unix stream socket.
//
// A message is the length of its body in four bytes, big endian, and the body. Its files come with
// the first byte. If the body is a list of words, each word ends in NUL.
package frame

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Socket is an [FD], or a connection with [Over].
type Socket interface {
	io.ReadWriter
	// receive and send make one system call each, with files.
	receive(b, oob []byte) (n, oobn int, err error)
	send(b, oob []byte) (n int, err error)
}

// Send sends a message, with duplicates of files. One system call sends all of a small message, so
// that a receiver never finds a part of it.
func Send(s Socket, body []byte, fds ...int) error {
	message := append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	n, err := s.send(message, rights)
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
	n, nr, err := s.receive(head[:], rights)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, nil, err
	}
	if messages, _ := unix.ParseSocketControlMessage(rights[:nr]); len(messages) == 1 {
		fds, _ = unix.ParseUnixRights(&messages[0]) // Send sends no other kind of message
	}
	if _, err := io.ReadFull(s, head[n:]); err != nil {
		return nil, fds, unexpected(err)
	}
	size := int(binary.BigEndian.Uint32(head[:]))
	if size > maxBody {
		return nil, fds, fmt.Errorf("a message of %d bytes, and %d are allowed", size, maxBody)
	}
	var text bytes.Buffer // grows with the received bytes, not with the announced length
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

// FD is a blocking socket. It does without Go's network poller, which would make a small process
// start later.
type FD int

func (fd FD) Read(b []byte) (n int, err error) {
	n, _, err = fd.receive(b, nil)
	if err == nil && n == 0 && len(b) > 0 {
		err = io.EOF
	}
	return max(n, 0), err // recvmsg returns -1 with an error, which io does not take
}

func (fd FD) Write(b []byte) (written int, err error) {
	for written < len(b) && err == nil {
		var n int
		n, err = fd.send(b[written:], nil)
		written += max(n, 0)
	}
	return written, err
}

// receive returns 0 at the end of the stream.
func (fd FD) receive(b, oob []byte) (n, oobn int, err error) {
	err = unix.EINTR
	for err == unix.EINTR {
		n, oobn, _, _, err = unix.Recvmsg(int(fd), b, oob, unix.MSG_CMSG_CLOEXEC)
	}
	return n, oobn, err
}

func (fd FD) send(b, oob []byte) (n int, err error) {
	err = unix.EINTR
	for err == unix.EINTR {
		n, err = unix.SendmsgN(int(fd), b, oob, nil, unix.MSG_NOSIGNAL)
	}
	return n, err
}

// Polled is a connection that waits in Go's network poller. This package does not import package
// net, which comes late in Go's order of initialization, because the guardian imports this package
// and must start early.
type Polled interface { // a net.UnixConn
	io.ReadWriter
	syscall.Conn
}

// Over makes a Socket of a connection.
func Over(c Polled) Socket { return polled{c} }

type polled struct{ Polled }

func (p polled) receive(b, oob []byte) (n, oobn int, err error) {
	conn, err := p.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	waited := conn.Read(func(fd uintptr) bool {
		n, oobn, err = FD(fd).receive(b, oob)
		return !errors.Is(err, unix.EAGAIN)
	})
	return n, oobn, cmp.Or(waited, err)
}

func (p polled) send(b, oob []byte) (n int, err error) {
	conn, err := p.SyscallConn()
	if err != nil {
		return 0, err
	}
	waited := conn.Write(func(fd uintptr) bool {
		n, err = FD(fd).send(b, oob)
		return !errors.Is(err, unix.EAGAIN)
	})
	return n, cmp.Or(waited, err)
}
