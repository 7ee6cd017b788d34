package launcher

import (
	"fmt"
	"os"
	"syscall"

	"github.com/golaunch/golaunch/rendezvous"
)

// obey passes on what this process is told while it leads the job: the coordinator stops the job in order at the first stop and
// kills it at the second; USR1 and USR2 go to every rank.
func (h *here) obey(c *rendezvous.Coordinator) {
	for {
		select {
		case <-h.left:
			return
		case s := <-h.job.Signals:
			if sig, ok := s.(syscall.Signal); ok && passedOn(sig) {
				c.Signal(sig)
			} else {
				c.Cancel(128+number(s), fmt.Sprintf("got %s", name(s)))
			}
		}
	}
}

func passedOn(sig syscall.Signal) bool { return sig == syscall.SIGUSR1 || sig == syscall.SIGUSR2 }

func number(s os.Signal) int {
	sig, _ := s.(syscall.Signal)
	return int(sig)
}

func name(s os.Signal) string {
	switch s {
	case syscall.SIGINT:
		return "SIGINT"
	case syscall.SIGTERM:
		return "SIGTERM"
	case syscall.SIGHUP:
		return "SIGHUP"
	case syscall.SIGQUIT:
		return "SIGQUIT"
	}
	return s.String()
}
