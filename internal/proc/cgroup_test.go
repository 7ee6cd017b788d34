package proc

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
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
		// A mount of the host's in a container with a cgroup namespace of its own, and a process that is outside of its namespace.
		{"0::/\n", strings.Replace(pure, " / ", " /.. ", 1), "", ""},
		{"0::/\n", strings.Replace(pure, " / ", " /../../x ", 1), "", ""},
		{"0::/../b\n", pure, "", ""},
		{"0::/a..b\n", pure, "", "/sys/fs/cgroup/a..b"},
	} {
		m, ok := parseMount(test.cgroups, test.mounts, test.controller)
		if m.own != test.own || ok != (test.own != "") {
			t.Errorf("controller %q of %q: got %q, %v, want %q", test.controller, test.cgroups, m.own, ok, test.own)
		}
	}
}

func TestParseStat(t *testing.T) {
	line := "42 (a) b (c) Z 7 8 9 0 -1 4194560 0"
	want := stat{pid: 42, ppid: 7, group: 8, session: 9, comm: "a) b (c", state: 'Z'}
	if st, ok := parseStat(42, []byte(line)); !ok || st != want || !st.dead() {
		t.Errorf("%q: got %+v, %v", line, st, ok)
	}
	for _, bad := range []string{"", "42", "42 (x", "42 (x)", "42 (x) R 1 2", "42 (x) R a b c", ") 42 ("} {
		if _, ok := parseStat(42, []byte(bad)); ok {
			t.Errorf("%q is taken for a line of /proc/PID/stat", bad)
		}
	}
}

func TestStaleCgroups(t *testing.T) {
	needCgroup(t)
	outer := makeHome()
	defer outer.remove()
	left := lockedHome(outer.dir)
	dead := left.dir
	must(t, os.MkdirAll(filepath.Join(dead, "0-a"), 0o755))
	must(t, left.lock.Close())
	others := filepath.Join(outer.dir, homePrefix+"1-x")
	must(t, os.MkdirAll(filepath.Join(others, "0-a"), 0o755))
	alive := lockedHome(outer.dir)
	removeStale(outer.dir)
	if err := unix.Access(filepath.Join(others, "0-a"), unix.F_OK); err != nil {
		t.Errorf("a cgroup that no supervisor has made is gone: %v", err)
	}
	must(t, removeGroup(others))
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a cgroup without a supervisor is left: %v", err)
	}
	must(t, unix.Access(alive.dir, unix.F_OK))
	must(t, alive.remove())
}

// TestSupervisorsStartTogether: each has its own cgroup, and none of them leaves one behind.
func TestSupervisorsStartTogether(t *testing.T) {
	needCgroup(t)
	outer := makeHome()
	defer outer.remove()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				removeStale(outer.dir)
				h := lockedHome(outer.dir)
				if h == nil {
					t.Error("no cgroup while others make theirs")
					return
				}
				if err := h.remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	left, err := filepath.Glob(filepath.Join(outer.dir, homePrefix+"*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%q are left, %v", left, err)
	}
}
