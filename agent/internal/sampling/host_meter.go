package sampling

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/process/procfs"
	"github.com/golaunch/golaunch/launcher/report"
)

// hostMeter measures this machine as the namespaces of this process show it.
type hostMeter struct {
	proc string
	// received and sent are the counters of InfiniBand, RoCE and EFA ports in sysfs. The standard
	// counters count words of four bytes.
	received, sent []portCounter
	at             time.Time
	busy           float64
	in, out        float64
}

type portCounter struct {
	file string
	unit float64
}

func newHostMeter() hostMeter {
	return hostMeter{
		proc:     "/proc",
		received: portCounters("port_rcv_data", "rx_bytes"),
		sent:     portCounters("port_xmit_data", "tx_bytes"),
	}
}

// portCounters finds a counter of each port: the standard one
// (Documentation/ABI/stable/sysfs-class-infiniband) or EFA's.
func portCounters(standard, efa string) (all []portCounter) {
	ports, _ := filepath.Glob("/sys/class/infiniband/*/ports/*") // the pattern is valid, so there is no error
	for _, port := range ports {
		for _, c := range []portCounter{{filepath.Join(port, "counters", standard), 4}, {filepath.Join(port, "hw_counters", efa), 1}} {
			if _, err := os.Stat(c.file); err == nil {
				all = append(all, c)
				break
			}
		}
	}
	return all
}

// read measures the time since the last read. Values that cannot be read are unknown.
func (h *hostMeter) read(now time.Time) report.Usage {
	v := report.Unmeasured()
	busy, okBusy := cpuSeconds(h.readFile("stat"))
	in, out, okNet := netBytes(h.readFile("net/dev"))
	in, out = in+sumOf(h.received), out+sumOf(h.sent)
	if span := now.Sub(h.at).Seconds(); !h.at.IsZero() && span > 0 {
		if okBusy {
			v.CPUs = max(0, (busy-h.busy)/span)
		}
		if okNet {
			v.Received, v.Sent = max(0, (in-h.in)/span), max(0, (out-h.out)/span)
		}
	}
	h.at, h.busy, h.in, h.out = now, busy, in, out
	v.Memory, v.MemoryTotal = memoryUse(h.readFile("meminfo"))
	return v
}

func (h *hostMeter) readFile(name string) []byte {
	text, err := procfs.ReadFile(filepath.Join(h.proc, name))
	if err != nil {
		return nil
	}
	return text
}

// cpuSeconds returns the machine's busy processor time from the first line of /proc/stat
// (proc_stat(5)). It adds all fields but idle, iowait and the guests' fields, which are part of
// user.
func cpuSeconds(stat []byte) (seconds float64, ok bool) {
	first, _, _ := bytes.Cut(stat, []byte{'\n'})
	fields := strings.Fields(string(first))
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, false
	}
	for _, i := range []int{1, 2, 3, 6, 7, 8} {
		ticks, err := strconv.ParseUint(fields[i], 10, 64)
		if err != nil {
			return 0, false
		}
		seconds += float64(ticks) / 100 // USER_HZ
	}
	return seconds, true
}

// netBytes sums the traffic of all network cards but loopback (proc_pid_net(5), dev).
func netBytes(dev []byte) (in, out float64, ok bool) {
	for line := range strings.Lines(string(dev)) {
		name, rest, found := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if !found || len(fields) < 9 || strings.TrimSpace(name) == "lo" {
			continue
		}
		r, err1 := strconv.ParseUint(fields[0], 10, 64)
		t, err2 := strconv.ParseUint(fields[8], 10, 64)
		if err1 != nil || err2 != nil {
			return 0, 0, false
		}
		in, out, ok = in+float64(r), out+float64(t), true
	}
	return in, out, ok
}

func sumOf(counters []portCounter) (total float64) {
	for _, c := range counters {
		text, err := procfs.ReadFile(c.file)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64); err == nil {
			total += float64(n) * c.unit
		}
	}
	return total
}

// memoryUse returns the used and the total memory in bytes, from /proc/meminfo (proc_meminfo(5)).
func memoryUse(meminfo []byte) (used, total float64) {
	kilobytes := map[string]float64{}
	for line := range strings.Lines(string(meminfo)) {
		name, rest, _ := strings.Cut(line, ":")
		if fields := strings.Fields(rest); len(fields) > 0 && (name == "MemTotal" || name == "MemAvailable") {
			if n, err := strconv.ParseUint(fields[0], 10, 64); err == nil {
				kilobytes[name] = float64(n)
			}
		}
	}
	all, ok1 := kilobytes["MemTotal"]
	free, ok2 := kilobytes["MemAvailable"]
	if !ok1 || !ok2 {
		return math.NaN(), math.NaN()
	}
	return (all - free) * 1024, all * 1024
}
