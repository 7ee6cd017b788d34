package agent

import "net"

// heldPort is a port that this node keeps for rank 0. Whoever connects is disconnected, but has seen that it can be reached.
type heldPort struct {
	net.Listener
	ended chan struct{}
}

// hold chooses the port of MASTER_PORT and keeps it, on all addresses as rank 0 will have it (torch's store listens on every
// interface), until [share.letGo].
func (s *share) hold() (int, error) {
	s.letGo()
	l, err := s.listen("", s.work.Task.MasterPort)
	if err != nil {
		return 0, err
	}
	s.held = &heldPort{l, make(chan struct{})}
	go s.held.answer()
	return portOf(l), nil
}

// letGo has the port free for rank 0 to bind, also without SO_REUSEADDR.
func (s *share) letGo() {
	if s.held != nil {
		s.held.Close()
		<-s.held.ended
		s.held = nil
	}
}

// answer ends each connection with a reset: an end in order, when this side is the first, would keep the port for a minute (TIME_WAIT).
func (h *heldPort) answer() {
	defer close(h.ended)
	for {
		c, err := h.Accept()
		if err != nil {
			return
		}
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}
