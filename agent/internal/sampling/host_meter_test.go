package sampling

import (
	"math"
	"testing"
)

func TestHostMeter(t *testing.T) {
	cpu, ok := cpuSeconds([]byte("cpu  100 20 30 9000 50 6 7 8 900 900\ncpu0 1 1 1 1\n"))
	if !ok || math.Abs(cpu-1.71) > 1e-9 {
		t.Errorf("%v s, %v", cpu, ok)
	}
	for _, bad := range []string{"", "cpu", "cpu a b c d e f g h", "intr 1 2 3 4 5 6 7 8 9"} {
		if _, ok := cpuSeconds([]byte(bad)); ok {
			t.Errorf("%q is taken", bad)
		}
	}
	in, out, ok := netBytes([]byte(`Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0
  eth0: 100 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0
 ens1:5 1 0 0 0 0 0 0 3 1 0 0 0 0 0 0
`))
	if !ok || in != 105 || out != 10 {
		t.Errorf("%v in, %v out, %v", in, out, ok)
	}
	used, total := memoryUse([]byte("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:   400 kB\n"))
	if used != 600*1024 || total != 1000*1024 {
		t.Errorf("%v of %v", used, total)
	}
	if used, total := memoryUse([]byte("MemTotal:  1000 kB\n")); !math.IsNaN(used) || !math.IsNaN(total) {
		t.Errorf("%v of %v of a kernel that does not tell", used, total)
	}
}
