package masterport

import (
	"net"
)

// Reserved is a port that this node keeps for rank 0. It accepts connections and resets them, so
// that other nodes can check that they reach the port.
type Reserved struct {
	net.Listener
	ended chan struct{}
}

// Reserve keeps the port of a listener until Release.
func Reserve(l net.Listener) *Reserved {
	r := &Reserved{l, make(chan struct{})}
	go r.reset()
	return r
}

// Release frees the port, so that rank 0 can bind it, even without SO_REUSEADDR. Release does
// nothing to a nil Reserved.
func (r *Reserved) Release() {
	if r != nil {
		r.Close()
		<-r.ended
	}
}

// reset resets each connection: an orderly close by this side would keep the port for a minute
// (TIME_WAIT).
func (r *Reserved) reset() {
	defer close(r.ended)
	for {
		c, err := r.Accept()
		if err != nil {
			return
		}
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}
