package sshtest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestHosts(t *testing.T) {
	t.Parallel()
	h := Start(t, 2)
	for i, n := range h.Nodes {
		out, err := h.Command("ssh", "-oBatchMode=yes", n.Name, "hostname; echo $SSH_CONNECTION").CombinedOutput()
		want := fmt.Sprintf("n%d\n%v ", i+1, h.Head.Addr)
		if err != nil || !strings.HasPrefix(string(out), want) || !strings.Contains(string(out), n.Addr.String()+" 22") {
			t.Errorf("%s says %q (%v), want %q", n.Name, out, err, want)
		}
	}
	for name, want := range map[string]string{
		"closed": "Connection refused", "stranger": "Host key verification failed", "locked": "Permission denied (publickey)",
		"nowhere": "Could not resolve hostname",
	} {
		out, err := h.Command("ssh", "-oBatchMode=yes", name, "true").CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v and %q, want %q", name, err, out, want)
		}
	}
}

// TestSessionsEnd: nothing outlives the servers, not even a process that has left its session.
func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	mark := fmt.Sprintf("1000.%d", os.Getpid())
	t.Run("session", func(t *testing.T) {
		h := Start(t, 1)
		stay := "sh -c 'echo up; exec sleep " + mark + "' & "
		cmd := h.Command("ssh", "-oBatchMode=yes", "n1", "setsid "+stay+stay+"wait")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Signal(syscall.SIGKILL); cmd.Wait() })
		said := make([]byte, len("up\nup\n"))
		if _, err := io.ReadFull(out, said); string(said) != "up\nup\n" {
			t.Fatalf("the session says %q: %v", said, err)
		}
		if now := running(t, mark); len(now) < 2 {
			t.Fatalf("the session has processes %v, want 2 at least", now)
		}
	})
	if now := running(t, mark); len(now) > 0 {
		t.Errorf("processes %v are left", now)
	}
}

// running lists the processes with a text in their command line.
func running(t *testing.T, text string) []string {
	t.Helper()
	out, err := exec.Command("pgrep", "-f", text).Output()
	if err != nil && len(out) > 0 {
		t.Error(err)
	}
	return strings.Fields(string(out))
}
