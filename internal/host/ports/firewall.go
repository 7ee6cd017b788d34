package ports

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
)

// Why says whether a firewall may have caused a failed connection. It is empty for errors that a
// firewall does not cause, such as a name without an address.
func Why(err error) string {
	if _, name := errors.AsType[*net.DNSError](err); name {
		return "" // a firewall does not cause this
	}
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there, or a firewall rejects it"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no machine has that address, the route is missing, or a firewall rejects it"
	case errors.Is(err, syscall.ECONNRESET):
		return "a firewall rejects it, or what listens there ended"
	case ok && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return "a firewall drops it, or the machine is gone"
	}
	return ""
}
