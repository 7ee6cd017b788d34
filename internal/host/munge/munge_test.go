package munge

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/slurmtest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// munged makes this process use the munged of a real Slurm, and returns where munged listens.
func munged(t *testing.T) string {
	t.Helper()
	for _, v := range slurmtest.Start(t, slurmtest.Options{}).Command("true").Env {
		if conf, ok := strings.CutPrefix(v, "SLURM_CONF="); ok {
			t.Setenv("SLURM_CONF", conf)
		}
	}
	return socket()
}

func TestCredential(t *testing.T) {
	munged(t)
	const text = "a secret\nof two lines\n\nand a gap"
	c, err := Encode(t.Context(), text)
	if err != nil || strings.Contains(c, "secret") || strings.Contains(c, "\n") {
		t.Fatalf("sealed: %q, %v", c, err)
	}
	if got, err := Decode(t.Context(), c); err != nil || got != text {
		t.Errorf("opened: %q, %v", got, err)
	}
	if got, err := Decode(t.Context(), c); err == nil || !strings.Contains(err.Error(), "Replayed") {
		t.Errorf("opened again: %q, %v", got, err)
	}
	c, err = Encode(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	tampered := []byte(c)
	if i := len(c) / 2; c[i] == 'A' {
		tampered[i] = 'B'
	} else {
		tampered[i] = 'A'
	}
	for _, bad := range []string{string(tampered), "", "MUNGE:AwQFAAD:", "MUNGE:" + strings.Repeat("A", 1<<16) + ":"} {
		if got, err := Decode(t.Context(), bad); err == nil || !strings.HasPrefix(err.Error(), "unmunge: ") {
			t.Errorf("opened %.20q: %q, %v", bad, got, err)
		}
	}
}

// TestAnothersCredential: a credential that another user has sealed is refused, even if it is for
// this user.
func TestAnothersCredential(t *testing.T) {
	at := munged(t)
	cmd := exec.Command("munge", "--socket="+at, "--restrict-uid=0", "--string=I am root")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	c, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Decode(t.Context(), string(c)); err == nil || !strings.Contains(err.Error(), "of uid 65534 was given to uid 0") {
		t.Errorf("opened: %q, %v", got, err)
	}
}

func TestNoDaemon(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	if err := os.WriteFile(conf, []byte("# AuthInfo=socket=/wrong\n authinfo = cred_expire=5,socket=/none \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLURM_CONF", conf)
	if s := socket(); s != "/none" {
		t.Errorf("the socket is %q", s)
	}
	if !Installed() {
		suite.Missing(t, "there is no munge: apt-get install munge")
	}
	if _, err := Encode(t.Context(), "x"); err == nil || !strings.HasPrefix(err.Error(), "munge: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("without munged: %v", err)
	}
}
