package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// machine runs a command of the machine.
func machine(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}

// smallDisk returns the directory of a small separate file system.
func smallDisk(t *testing.T) string {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	machine(t, "truncate", "-s", "8M", image)
	machine(t, "mkfs.ext4", "-q", "-O", "^has_journal", image)
	machine(t, "mount", "-o", "loop", image, dir)
	t.Cleanup(func() { machine(t, "umount", dir) })
	return dir
}

// TestTheDiskOfTheStateIsFrozen: the disk is frozen for three leases. No node is lost, and a rank
// that fails meanwhile is started again afterwards.
func TestTheDiskOfTheStateIsFrozen(t *testing.T) {
	t.Parallel()
	h, disk := newCluster(t), smallDisk(t)
	coordinator := h.coordinate("--lease", "3s", "--state-dir", filepath.Join(disk, "state"))
	h.join(1, "n10", 1)
	job := h.start(1, "--coordinator", h.at, "--job-id", "a", "--gpus-per-node", "1", "--backoff", "0s", "--", "sh", "-c",
		"echo attempt $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || until [ -e fail ]; do sleep 0.02; done; [ $TORCHELASTIC_RESTART_COUNT = 1 ]")
	job.line("attempt 0")
	other := h.start(1, "--coordinator", h.at, "--job-id", "b", "--procs-per-node", "1", "--", "sh", "-c",
		"echo b is up; until [ -e end ]; do sleep 0.02; done; [ $TORCHELASTIC_RESTART_COUNT = 0 ]")
	other.line("b is up")
	thawed := false
	thaw := func() {
		if !thawed {
			thawed = true
			machine(t, "fsfreeze", "-u", disk)
		}
	}
	machine(t, "fsfreeze", "-f", disk)
	t.Cleanup(thaw)
	h.touch("fail")
	<-time.After(9 * time.Second)
	if s := h.status(); len(s.Nodes) != 1 || s.job(t, "b").Attempt != 0 {
		t.Errorf("on a frozen disk: %+v", s)
	}
	if text, _ := job.out.read(); strings.Contains(text, "attempt 1") {
		t.Error("attempt 1 was begun before a later coordinator would know of that")
	}
	thaw()
	h.touch("end")
	other.ends(0)
	job.ends(0, "attempt 1")
	if text, _ := coordinator.out.read(); strings.Contains(text, "lost") {
		t.Errorf("the coordinator says: %s", text)
	}
}

// dies makes a disk fail every access, as if it had been pulled out (EXT4_IOC_SHUTDOWN of
// linux/fs/ext4/ext4.h).
func dies(t *testing.T, dir string) {
	t.Helper()
	const shutdown, atOnce = 0x8004587d, 2
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := unix.IoctlSetPointerInt(int(d.Fd()), shutdown, atOnce); err != nil {
		t.Fatal(err)
	}
}

// TestTheDiskOfTheStateIsFull: the disk is full, and later fails. The coordinator accepts no job
// that a later coordinator would not know, and running jobs go on.
func TestTheDiskOfTheStateIsFull(t *testing.T) {
	t.Parallel()
	h, disk := newCluster(t), smallDisk(t)
	coordinator := h.coordinate("--state-dir", filepath.Join(disk, "state"))
	h.join(1, "n10", 1)
	job := h.start(1, "--coordinator", h.at, "--job-id", "a", "--gpus-per-node", "1", "--backoff", "0s", "--", "sh", "-c",
		"echo attempt $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || until [ -e fail ]; do sleep 0.02; done; [ $TORCHELASTIC_RESTART_COUNT = 1 ]")
	job.line("attempt 0")
	if out, err := exec.Command("dd", "if=/dev/zero", "of="+filepath.Join(disk, "all"), "bs=1k").CombinedOutput(); err == nil {
		t.Fatalf("the disk is not full:\n%s", out)
	}
	h.start(1, "--coordinator", h.at, "--job-id", "b", "--", "true").ends(125, "golaunch: the coordinator cannot write its log at the moment", "no space left on device")
	h.touch("fail")
	job.ends(0, "attempt 1")
	dies(t, disk)
	h.start(1, "--coordinator", h.at, "--job-id", "b", "--", "true").ends(125, "golaunch: the coordinator cannot write its log at the moment")
	if j := h.status().job(t, "a"); j.Result == nil || j.Result.Code != 0 || j.Restarts != 1 {
		t.Errorf("%+v", j)
	}
	coordinator.signal(syscall.SIGTERM)
	coordinator.wait()
}
