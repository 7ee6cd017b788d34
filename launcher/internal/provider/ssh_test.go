package provider

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAHostThatIsDown: List still returns the node that was last seen on a host that is down.
func TestAHostThatIsDown(t *testing.T) {
	dir := t.TempDir()
	// The stand-in for ssh: on host n1 runs the agent of a-1, and a host is down if a file has the
	// host's name.
	text := `#!/bin/sh
for host; do [ "$host" = n1 ] || [ "$host" = n2 ] && break; done
[ ! -e ` + dir + `/$host ] || { echo "connect to host $host: No route to host" >&2; exit 255; }
[ $host = n2 ] || echo capacity.tag=a-1
`
	if err := os.WriteFile(filepath.Join(dir, "ssh"), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	down := func(host string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, host), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	newSSH := func(coordinator string) SSH {
		t.Helper()
		p, err := NewSSH([]string{"n1", "n2"}, Agent{Coordinator: coordinator}, "")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	list := func(p SSH, want string) {
		t.Helper()
		if states, err := p.List(t.Context()); err != nil || states["a-1"] != want {
			t.Errorf("%v, %v, want %s", states, err, want)
		}
	}
	p := newSSH("n0:1")
	list(p, "on host n1")
	down("n1")
	list(p, "on host n1, which cannot be reached")
	const why = "a-1 may be on it: host n1: ssh: exit status 255: connect to host n1: No route to host"
	if err := p.Delete(t.Context(), []string{"a-1"}); err == nil || err.Error() != why {
		t.Error(err)
	}
	if err := p.Delete(t.Context(), []string{"a-2"}); err != nil { // no error: a coordinator would refuse the agent of a-2
		t.Error(err)
	}
	if err := newSSH("").Delete(t.Context(), []string{"a-2"}); err == nil || !strings.HasPrefix(err.Error(), "a-2 may be on a host that cannot be reached: host n1: ") {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(dir, "n1")); err != nil {
		t.Fatal(err)
	}
	if err := p.Delete(t.Context(), []string{"a-1"}); err != nil {
		t.Error(err)
	}
	down("n1")
	list(p, "on host n1, which cannot be reached") // Delete has found the host, but does not know yet that the agent has ended
}
