package ncclprobe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/agent/internal/masterport"
)

const (
	// addressVar tells NCCL where its RAS service listens
	// (docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html).
	addressVar = "NCCL_RAS_ADDR"
	// defaultPort is NCCL_RAS_CLIENT_PORT in src/ras/ras_internal.h.
	defaultPort = 28028
	// tries are how many addresses with the default port are tried before free ports.
	tries = 64
)

// Address returns an address of this machine at which nothing listens, for the RAS service of one
// rank. By default the ranks of all jobs on a node share localhost:28028, so golaunch could not ask
// a single rank. Every address in 127.0.0.0/8 is this machine. Address picks one at random and does
// not reserve it: two jobs rarely pick the same address, even in containers that share the host's
// network. NCCL survives if the address is taken. Without IPv4, or if a program listens at the
// default port on all addresses, Address returns a free port of localhost.
func Address() (string, error) { return address(defaultPort) }

func address(port int) (string, error) {
	for range tries {
		// localhost and simulated nodes use addresses in 127.0.0.0/16.
		ip := netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(254)), byte(rand.IntN(256)), byte(1 + rand.IntN(254))})
		if l, err := net.Listen("tcp", net.JoinHostPort(ip.String(), strconv.Itoa(port))); err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	var errs []error
	for _, host := range []string{"127.0.0.1", "::1"} {
		l, err := masterport.Low.Listen(context.Background(), host)
		if err == nil {
			return l.Addr().String(), l.Close()
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("no address for NCCL's RAS service: %w", errors.Join(errs...))
}

// AddressIn returns the address from a rank's environment, which may be the user's own.
func AddressIn(env []string) string {
	for _, pair := range env {
		if value, ok := strings.CutPrefix(pair, addressVar+"="); ok {
			return value
		}
	}
	return ""
}
