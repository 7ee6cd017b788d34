package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	"github.com/golaunch/golaunch/placement"
)

const (
	// rasVar is where NCCL's RAS service of a process listens (docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html).
	rasVar = "NCCL_RAS_ADDR"
	// rasPort is the port that it has by default (NCCL_RAS_CLIENT_PORT in src/ras/ras_internal.h).
	rasPort = 28028
	// rasTries are addresses that are tried before free ports are.
	rasTries = 64
)

// RASAddr is an address of this machine at which nothing listens, for NCCL's RAS service of one rank. By default the ranks of all
// jobs on a node share localhost:28028, so that none can be asked by itself. All of 127.0.0.0/8 is this machine: an address picked
// at random there is another job's so rarely that nobody needs to keep it, also where containers share the host's network. That it
// is taken after all, NCCL survives. Where there is no IPv4, or somebody listens at that port on all addresses, it is a free port.
func RASAddr() (string, error) { return rasAddr(rasPort) }

func rasAddr(usual int) (string, error) {
	for range rasTries {
		// 127.0.0.0/16 has localhost, and simulated nodes.
		ip := netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(254)), byte(rand.IntN(256)), byte(1 + rand.IntN(254))})
		if vacant(ip.String(), usual) == nil {
			return netip.AddrPortFrom(ip, uint16(usual)).String(), nil
		}
	}
	var errs []error
	for _, host := range []string{"127.0.0.1", "::1"} {
		l, err := lowPorts.Listen(context.Background(), host)
		if err == nil {
			return l.Addr().String(), l.Close()
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("no address for NCCL's RAS service: %w", errors.Join(errs...))
}

// vacant is an error where something listens.
func vacant(host string, port int) error {
	l, err := listen(host, port)
	if err != nil {
		return err
	}
	return l.Close()
}

// rasAddr is the one for a rank; empty for one that has no GPU, and where there is none.
func (u *unit) rasAddr(b placement.Bundle) string {
	if b.GPU == nil {
		return ""
	}
	addr, err := RASAddr()
	if err != nil {
		u.agent.Warn(fmt.Errorf("rank %d: %w; it keeps NCCL's own, which all ranks of a node share", b.Rank, err))
	}
	return addr
}

// rasOf reads the address back from a rank's environment, where the user's own wins.
func rasOf(env []string) string {
	for _, pair := range env {
		if value, ok := strings.CutPrefix(pair, rasVar+"="); ok {
			return value
		}
	}
	return ""
}
