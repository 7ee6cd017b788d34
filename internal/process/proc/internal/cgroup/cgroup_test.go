package cgroup

import (
	"strings"
	"testing"
)

func TestParseMount(t *testing.T) {
	const (
		hybrid = "31 23 0:28 / /sys/fs/cgroup rw shared:1 - tmpfs tmpfs rw\n" +
			"35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
			"36 31 0:33 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
			"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		pure      = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 master:2 - cgroup2 cgroup2 rw,nsdelegate\n"
		container = "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
	)
	for _, test := range []struct{ cgroups, mounts, controller, own string }{
		{"4:memory:/job\n0::/\n", hybrid, "", "/sys/fs/cgroup/unified"},
		{"4:memory:/job\n0::/\n", hybrid, "memory", "/sys/fs/cgroup/memory/job"},
		{"3:cpu,cpuacct:/x\n0::/\n", hybrid, "cpuacct", "/sys/fs/cgroup/cpu,cpuacct/x"},
		{"0::/user.slice/a:b.scope\n", pure, "", "/sys/fs/cgroup/user.slice/a:b.scope"},
		{"0::/user.slice\n", pure, "memory", ""},
		{"0::/docker/abc/x\n", container, "", "/sys/fs/cgroup/x"},
		{"0::/docker/abc\n", container, "", "/sys/fs/cgroup"},
		{"0::/elsewhere\n", container, "", ""},
		{"1:name=systemd:/\n", pure, "", ""},
		{"", "", "", ""},
		// The first case is a mount of the host in a container with its own cgroup namespace, the
		// second a process outside of its namespace.
		{"0::/\n", strings.Replace(pure, " / ", " /.. ", 1), "", ""},
		{"0::/\n", strings.Replace(pure, " / ", " /../../x ", 1), "", ""},
		{"0::/../b\n", pure, "", ""},
		{"0::/a..b\n", pure, "", "/sys/fs/cgroup/a..b"},
	} {
		m, ok := parseMount(test.cgroups, test.mounts, test.controller)
		if m.Own != test.own || ok != (test.own != "") {
			t.Errorf("controller %q of %q: got %q, %v, want %q", test.controller, test.cgroups, m.Own, ok, test.own)
		}
	}
}
