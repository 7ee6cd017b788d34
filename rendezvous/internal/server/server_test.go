package server

import (
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/grpc/test/bufconn"
)

// fullListener fails its first Accept for lack of descriptors. It closes served when a later Accept
// returns a connection.
type fullListener struct {
	net.Listener
	calls  atomic.Int32
	served chan struct{}
}

func (l *fullListener) Accept() (net.Conn, error) {
	switch l.calls.Add(1) {
	case 1:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	case 2:
		close(l.served)
	}
	return l.Listener.Accept()
}

// TestFirstAccept checks that the server calls Accept again if the first call fails for lack of
// descriptors.
func TestFirstAccept(t *testing.T) {
	s := New(nil, func(err error) { t.Error(err) }, nil)
	l := &fullListener{Listener: bufconn.Listen(1 << 10), served: make(chan struct{})}
	done, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.Serve(l, done) }()
	select {
	case <-l.served:
	case err := <-ended:
		t.Fatalf("the server has ended: %v", err)
	}
	close(done)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
