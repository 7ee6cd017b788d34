package gpulog

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/health"
)

const (
	// maxFaults bounds the reported part of the kernel log, in bytes. The newest lines are kept.
	maxFaults = 4 << 10
	// printkSlack is how far the kernel log's clock may be from CLOCK_MONOTONIC.
	printkSlack = 2 * time.Second
)

// Faults returns the kernel log's lines about GPU faults since the start of a process that has
// lived this long, with a slack of 2 s. It returns none if this user may not read the log.
func Faults(lived time.Duration) string {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return ""
	}
	log, err := health.ThisMachine().KernelLog()
	if err != nil {
		return ""
	}
	return faultsSince(log, time.Duration(now.Nano())-lived-printkSlack)
}

// faultsSince picks lines such as "<3>[12345.678901] NVRM: Xid (PCI:0000:0f:00): 79, ...". It omits
// lines from before since, which is a time since boot.
func faultsSince(log string, since time.Duration) string {
	var faults strings.Builder
	for line := range strings.Lines(log) {
		_, rest, _ := strings.Cut(line, "[")
		var seconds float64
		if _, err := fmt.Sscanf(rest, "%f]", &seconds); err != nil || seconds < since.Seconds() || !strings.Contains(line, "NVRM: Xid (") {
			continue
		}
		faults.WriteString(line)
	}
	text := faults.String()
	return text[max(0, len(text)-maxFaults):]
}
