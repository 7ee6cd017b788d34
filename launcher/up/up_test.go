package up

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// cluster opens a cluster's file, and puts a stand-in for aws into PATH. The stand-in lists
// machines. reached says whether ssh has reached the cluster's head before.
func cluster(t *testing.T, text, machines string, reached bool) (c *Cluster, said *strings.Builder, left func() string) {
	t.Helper()
	dir := t.TempDir()
	aws := "#!/bin/sh\ncase $2 in\ndescribe-instances) echo \"[$(cat " + dir + "/machines)]\" ;;\nterminate-instances) : >" + dir + "/machines ;;\nesac\n"
	for name, text := range map[string]string{"cluster.yaml": text, "machines": machines, "aws": aws} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if known := filepath.Join(dir, ".golaunch/clusters/c/known_hosts"); reached {
		if err := errors.Join(os.MkdirAll(filepath.Dir(known), 0o700), os.WriteFile(known, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", dir)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	c, err := Open(filepath.Join(dir, "cluster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	said = &strings.Builder{}
	c.Say = func(text string) { fmt.Fprintln(said, text) }
	c.Warn = func(err error) { fmt.Fprintln(said, err) }
	c.Confirm = func(string) (bool, error) { return true, nil }
	return c, said, func() string {
		text, err := os.ReadFile(filepath.Join(dir, "machines"))
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
}

// TestDownWithoutItsHead: down deletes the machines that the cloud lists. It must not report that
// nothing is left, because only the head knew the nodes of some kinds.
func TestDownWithoutItsHead(t *testing.T) {
	const (
		kinds   = "name: c\nhead: {kind: k}\nkinds:\n  k: {max: 1, cpus: 1, aws: [--region=r, --instance-type=m]}\n"
		other   = "  toy: {max: 1, exec: ['true']}\n"
		stopped = `{"ID": "i-1", "State": "stopped", "Tags": [{"Key": "Name", "Value": "c-head"}]}`
		worker  = `{"ID": "i-2", "State": "running", "Tags": [{"Key": "Name", "Value": "k-1"}]}`
	)
	for _, tc := range []struct {
		text, machines string
		reached        bool
		said, failure  string
	}{
		{kinds, stopped, true, "the head c-head cannot be reached: instance i-1, stopped; down deletes what", ""},
		{kinds, worker, true, "the head c-head is not there; down deletes what the clouds list without it", ""},
		{kinds + other, stopped, true, "cannot be reached", "nodes of toy may be left, which only the head knew: the head c-head cannot be reached"},
		{kinds + other, "", true, "the head c-head is not there", "nodes of toy may be left, which only the head knew: the head c-head is not there"},
		{kinds + other, "", false, "cluster c is not up: its cloud has no head of it", ""},
		{kinds, "", true, "cluster c is not up: nothing is left of it", ""},
	} {
		c, said, left := cluster(t, tc.text, tc.machines, tc.reached)
		err := c.Down(t.Context())
		if (err == nil) != (tc.failure == "") || err != nil && !strings.Contains(err.Error(), tc.failure) || !strings.Contains(said.String(), tc.said) || left() != "" {
			t.Errorf("%s: %v, left %q, said\n%s\nwant %s %s", tc.machines, err, left(), said, tc.said, tc.failure)
		}
		if strings.Contains(said.String(), "nothing is left") != (tc.text == kinds) {
			t.Errorf("%v: said\n%s", err, said)
		}
	}
}

// TestHeadNonce: the nonce stays the same for as long as the cloud may not list the head yet, and
// then changes.
func TestHeadNonce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "head")
	get := func() string {
		t.Helper()
		nonce, err := headNonce(file)
		if err != nil || len(nonce) != nonceLen+1 {
			t.Fatalf("%q, %v", nonce, err)
		}
		return nonce
	}
	first := get()
	if again := get(); again != first {
		t.Errorf("%s, and then %s", first, again)
	}
	old := time.Now().Add(-nonceTime)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	if next := get(); next == first {
		t.Error("the same after a long time")
	}
}

// TestDownOfACoordinatorThatNeverStarted: without a coordinator's log, golaunch has asked for no nodes.
func TestDownOfACoordinatorThatNeverStarted(t *testing.T) {
	c, said, _ := cluster(t, "name: c\nkinds:\n  toy: {max: 1, exec: ['true']}\n", "", false)
	dir := filepath.Join(os.Getenv("HOME"), ".golaunch/clusters/c")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "values"), []byte("name: c\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := c.Down(t.Context()); err != nil || !strings.Contains(said.String(), "cluster c is down; nothing is left of it") {
		t.Errorf("%v, said\n%s", err, said)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", dir, err)
	}
}

// TestTheHeadIsNotReached: the error says which command must work.
func TestTheHeadIsNotReached(t *testing.T) {
	c, _, _ := cluster(t, "name: c\nhead: me@login\nkinds:\n  toy: {max: 1, exec: ['true']}\n", "", false)
	ssh := filepath.Join(os.Getenv("HOME"), "ssh") // HOME is in PATH
	if err := os.WriteFile(ssh, []byte("#!/bin/sh\necho Permission denied >&2\nexit 255\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	const want = "cannot ask the head me@login: exit status 255: Permission denied; this command must work, and ask no question: ssh -- me@login true"
	if err := c.Up(t.Context()); err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// TestOnlyThisMachineReachesTheCoordinator: up says so, unless the file wants that.
func TestOnlyThisMachineReachesTheCoordinator(t *testing.T) {
	for listen, warns := range map[string]bool{"": true, "listen: ':29400'\n": true, "listen: 127.0.0.1\n": false, "listen: '127.0.0.1:29400'\n": false} {
		c, said, _ := cluster(t, "name: c\n"+listen+"kinds:\n  toy: {max: 1, exec: ['true']}\n", "", false)
		c.hint(&head{name: "this machine"}, "127.0.0.1:29400")
		if strings.Contains(said.String(), "no other machine reaches the coordinator at 127.0.0.1:29400") != warns {
			t.Errorf("%q: said\n%s", listen, said)
		}
	}
	c, said, _ := cluster(t, "cluster_name: c\nprovider: {type: local, head_ip: h1, worker_ips: [h2]}\n", "", false)
	if c.hint(&head{name: "h1"}, "127.0.0.1:29400"); !strings.Contains(said.String(), "h1 has no default route, so give it one, and") || strings.Contains(said.String(), "listen") {
		t.Errorf("of Ray's file, which has no such key: said\n%s", said)
	}
}

// TestTheCoordinatorDoesNotStart: its message is in JSON, and the error has its text.
func TestTheCoordinatorDoesNotStart(t *testing.T) {
	h := &head{name: "this machine"}
	_, err := h.run(t.Context(), nil, `echo '{"format_version":1,"error":{"code":125,"message":"port 29400 is in use"}}' >&2; exit 1`)
	if err == nil || err.Error() != "exit status 1: port 29400 is in use" {
		t.Error(err)
	}
}
