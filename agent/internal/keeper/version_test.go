package keeper

import (
	"encoding/binary"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/process/procfs"
)

// otherKeeper runs a keeper for a directory that sends exactly these messages to the next agent.
func otherKeeper(t *testing.T, dir string, words ...message) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, socketName), Net: "unix"})
	must(t, err)
	said := make(chan error, 1)
	go func() {
		conn, err := l.AcceptUnix()
		for _, m := range words {
			if err == nil {
				err = (&link{conn: conn}).send(m)
			}
		}
		said <- err
	}()
	t.Cleanup(func() { must(t, errors.Join(<-said, l.Close())) })
}

func TestAKeeperOfAnotherProtocol(t *testing.T) {
	dir := t.TempDir()
	otherKeeper(t, dir, message{Do: doJoined, ID: protocol + 1, At: procfs.BootTime() + time.Hour + 400*time.Millisecond}) // the error rounds the time
	_, err := Open(dir, nil)
	if err == nil || !strings.Contains(err.Error(), "keeper belongs to another version of golaunch (protocol 3, this one has 2): its ranks end in 1h0m0s, unless") {
		t.Errorf("it is opened: %v", err)
	}
}

// TestANewerKeeper has a keeper that sends more than this agent knows.
func TestANewerKeeper(t *testing.T) {
	dir := t.TempDir()
	otherKeeper(t, dir, message{Do: doJoined, ID: protocol, Data: []byte("the agent")}, message{Do: "novelty", Job: "job"}, message{Do: doReady})
	k, err := Open(dir, nil)
	must(t, err)
	if string(k.Left.Membership) != "the agent" {
		t.Errorf("it finds %+v", k.Left)
	}
	must(t, k.Leave())
}

// TestANewerAgent sends orders and fields that this keeper does not know. The answers say which
// orders the keeper does not know, and the agent can continue.
func TestANewerAgent(t *testing.T) {
	k := open(t, t.TempDir())
	if _, err := k.ask(message{Do: "novelty"}); err == nil || !strings.Contains(err.Error(), `does not know the order "novelty"`) {
		t.Errorf("the answer to an unknown order is %v", err)
	}
	body := `{"Do":"scope","Seq":9,"Novelty":[1,2,3]}`
	answer := make(chan message, 1)
	k.mu.Lock()
	k.asked[9] = answer
	k.mu.Unlock()
	_, err := k.link.conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	must(t, err)
	if m := <-answer; m.err() != nil || m.ID == 0 {
		t.Errorf("the answer to unknown fields is %+v", m)
	}
}
