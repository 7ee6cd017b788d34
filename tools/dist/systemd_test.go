package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// machine is a Debian with systemd as its first process, in its own namespaces. It keeps nothing.
type machine struct {
	t      *testing.T
	init   string
	cgroup string
}

// boot is run in new namespaces. ROOT has the system, and all writes go to the layer TOP.
const boot = `set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$TOP"
mkdir "$TOP/upper" "$TOP/work" "$TOP/root"
mount -t overlay -o "lowerdir=$ROOT,upperdir=$TOP/upper,workdir=$TOP/work" overlay "$TOP/root"
cd "$TOP/root"
mkdir -p packages
mount --bind "$PACKAGES" packages
mount -t proc proc proc
for d in run tmp; do mount -t tmpfs tmpfs $d; done
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
for n in null zero full random urandom tty; do touch dev/$n; mount --bind /dev/$n dev/$n; done
mkdir dev/pts dev/shm run/old
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ip link set lo up
pivot_root . run/old
umount -l run/old
mount --make-rshared / # systemd gives services their credentials through it
exec env -i container=test PATH=/usr/sbin:/usr/bin /lib/systemd/systemd
`

// booted starts a machine, which ends with the test.
func booted(t *testing.T) *machine {
	t.Helper()
	needRoot(t)
	root := os.Getenv("GOLAUNCH_TEST_SYSTEMD")
	if root == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("GOLAUNCH_TEST_SYSTEMD names no root of a Debian with systemd; .ci/run makes one")
		}
		t.Skip("GOLAUNCH_TEST_SYSTEMD names no root of a Debian with systemd; .ci/run makes one")
	}
	m := &machine{t: t, cgroup: filepath.Join(unified(t), fmt.Sprintf("golaunch-test-dist-%d", os.Getpid()))}
	if err := os.Mkdir(m.cgroup, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.gone)
	cmd := exec.Command("sh", "-c", `echo 0 >"$CGROUP/cgroup.procs" && exec unshare --mount --pid --fork --kill-child --cgroup --ipc --uts --net sh -c "$0"`, boot)
	cmd.Env = append(os.Environ(), "ROOT="+root, "TOP="+t.TempDir(), "PACKAGES="+all(t), "CGROUP="+m.cgroup)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also when the tests end by a panic
	runtime.LockOSThread()                                             // the death of this thread sends the signal
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the first process of the namespace dies with it, and then all others
		_ = cmd.Wait()         // the machine was killed
	})
	m.until("systemd", func() bool {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
		m.init = strings.TrimSpace(string(children))
		if err != nil || m.init == "" {
			return false
		}
		name, err := os.ReadFile("/proc/" + m.init + "/comm")
		return err == nil && strings.TrimSpace(string(name)) == "systemd"
	})
	m.until("the end of the boot", func() bool {
		state, _ := m.try("systemctl is-system-running")
		return state == "running\n" || state == "degraded\n"
	})
	return m
}

// unified is the mount of cgroups of version 2.
func unified(t *testing.T) string {
	t.Helper()
	out := do(t, "findmnt", "-n", "-o", "TARGET", "-t", "cgroup2")
	return strings.TrimSpace(strings.SplitN(out, "\n", 2)[0])
}

// gone removes the machine's cgroups once its processes are no more.
func (m *machine) gone() {
	m.until("the end of the machine", func() bool {
		var dirs []string
		_ = filepath.WalkDir(m.cgroup, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil // it is looked at again
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			_ = os.Remove(dirs[i]) // it is looked at again
		}
		_, err := os.Stat(m.cgroup)
		return os.IsNotExist(err)
	})
}

// patience bounds the wait for states without an event.
const patience = 2 * time.Minute

// until polls for a state without an event.
func (m *machine) until(what string, is func() bool) {
	m.t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			log, _ := m.try("journalctl --no-pager -b | tail -50")
			m.t.Fatalf("%s has not happened\n%s", what, log)
		}
	}
}

// try runs a script on the machine.
func (m *machine) try(script string) (string, error) {
	if _, err := strconv.Atoi(m.init); err != nil {
		return "", syscall.ESRCH
	}
	return try(m.t, "nsenter", "-t", m.init, "-m", "-p", "-C", "-i", "-u", "-n", "-r", "-w", "env", "-i", "PATH=/usr/sbin:/usr/bin", "HOME=/root", "sh", "-c", script)
}

func (m *machine) do(script string) string {
	m.t.Helper()
	out, err := m.try(script)
	if err != nil {
		log, _ := m.try("journalctl --no-pager -b | tail -50")
		m.t.Fatalf("%s: %v\n%s\n%s", script, err, out, log)
	}
	return out
}

// configured makes the machine a whole cluster, and runs a long job as a user.
func (m *machine) configured() {
	m.t.Helper()
	if state, _ := m.try("systemctl is-enabled golaunch-agent golaunch-coordinator"); state != "disabled\ndisabled\n" {
		m.t.Errorf("after the installation the services are %q", state)
	}
	m.do(`systemctl start golaunch-agent`) // without a token, its condition is not met, which is no failure
	if state := m.do("systemctl show -p ActiveState -p ConditionResult golaunch-agent"); state != "ActiveState=inactive\nConditionResult=no\n" {
		m.t.Errorf("without a token the agent is %q", state)
	}
	m.do(`openssl rand -hex 32 | install -m 0400 /dev/stdin /etc/golaunch/token
		echo GOLAUNCH_COORDINATOR=127.0.0.1:29400 >>/etc/golaunch/agent.env
		echo GOLAUNCH_LISTEN=127.0.0.1:29400 >>/etc/golaunch/coordinator.env
		systemctl enable --now golaunch-coordinator golaunch-agent
		useradd -m u
		install -d -o u -m 0700 /home/u/.golaunch
		golaunch submit-token --token-file /etc/golaunch/token | install -o u -m 0600 /dev/stdin /home/u/.golaunch/token`)
	m.until("the agent", m.joined)
	m.as("golaunch run --detach --job-id long --procs-per-node 2 -- sh -c 'id -un >$HOME/rank$RANK; exec sleep 1000'")
	m.until("the ranks", func() bool { return m.ranks() == 2 })
	if who := m.do("cat /home/u/rank1"); who != "u\n" {
		m.t.Errorf("the ranks run as %s", who)
	}
	if out := m.do("systemctl show -p NRestarts golaunch-coordinator"); out != "NRestarts=0\n" {
		m.t.Errorf("the coordinator was started again: %s", out)
	}
}

// joined reports whether the agent is in the cluster.
func (m *machine) joined() bool {
	out, err := m.try("golaunch status --token-file /etc/golaunch/token --coordinator 127.0.0.1:29400")
	return err == nil && strings.Contains(out, "ready")
}

// as runs a command as the user.
func (m *machine) as(command string) string {
	m.t.Helper()
	return m.do("cd /home/u && su u -c " + quoted("GOLAUNCH_COORDINATOR=127.0.0.1:29400 "+command))
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// ranks counts the job's ranks.
func (m *machine) ranks() int {
	out, _ := m.try(`grep -lz '^sleep$' /proc/[0-9]*/cmdline`)
	return strings.Count(out, "\n")
}

// upgraded installs the package again, and checks that the job has not noticed.
func (m *machine) upgraded(install string) {
	m.t.Helper()
	before := m.do("systemctl show -p MainPID golaunch-agent")
	m.do(install)
	if after := m.do("systemctl show -p MainPID golaunch-agent"); after == before {
		m.t.Error("the agent was not started again")
	}
	m.until("the new agent", m.joined)
	if n := m.ranks(); n != 2 {
		m.t.Errorf("after the upgrade there are %d ranks", n)
	}
	if out := m.as("golaunch status long"); strings.Contains(out, "restart") || !strings.Contains(out, "running") {
		m.t.Errorf("after the upgrade: %s", out)
	}
}

// bare checks that nothing is left of a package.
func (m *machine) bare() {
	m.t.Helper()
	if n := m.ranks(); n != 0 {
		m.t.Errorf("%d ranks are left", n)
	}
	left := m.do(`find / -xdev -name '*golaunch*' -not -path '/packages/*' -not -path '/home/*'; find /sys/fs/cgroup /run /tmp -name '*golaunch*' -not -path '/run/old/*'
		systemctl list-units --all --no-pager --plain --no-legend 'golaunch*'`)
	if left != "" {
		m.t.Errorf("something is left:\n%s", left)
	}
}

// TestDeb: installed, configured, upgraded under a running job, removed.
func TestDeb(t *testing.T) {
	m := booted(t)
	install := "dpkg -i /packages/*_" + do(t, "dpkg", "--print-architecture")[:5] + ".deb"
	m.do(install)
	m.do("man -w golaunch-agent || test -e /usr/share/man/man1/golaunch-agent.1.gz")
	m.configured()
	m.upgraded(install)
	if level := m.do("systemd-analyze security golaunch-coordinator.service --threshold=20 | tail -1"); !strings.Contains(level, "OK") {
		t.Errorf("the coordinator is exposed: %s", level)
	}
	m.do("dpkg -r golaunch")
	m.do("dpkg -P golaunch")
	m.bare()
}

// TestRPM tests the same with rpm's own tools, on a system whose other packages these tools do not
// know.
func TestRPM(t *testing.T) {
	m := booted(t)
	m.do("rpm -K --nosignature /packages/*.x86_64.rpm")
	m.do("rpm -i --nodeps --force-debian /packages/*.x86_64.rpm")
	m.configured()
	m.upgraded("rpm -U --replacepkgs --oldpackage --nodeps --force-debian /packages/*.x86_64.rpm")
	m.do("rpm -e --nodeps --force-debian golaunch && rm -f /etc/golaunch/token /etc/golaunch/*.rpmsave && rmdir /etc/golaunch")
	m.bare()
}
