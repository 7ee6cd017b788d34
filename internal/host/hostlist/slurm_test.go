package hostlist

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// TestSlurm compares both directions with Slurm, for numbers that fit in 64 bits: Slurm takes
// larger numbers for the largest 64-bit number. Where Slurm is not installed the test is skipped,
// or fails if CI=true.
func TestSlurm(t *testing.T) {
	if _, err := exec.LookPath("scontrol"); err != nil {
		suite.Missing(t, "%v; install Debian's slurm-client", err)
	}
	var expand, compress []list
	for _, text := range []string{
		"gpu[001-004,007],login1", "a,a,b,a", "n[8-11]", "n[08-11]", "n[098-101]", "n[8-011]", "n[008-09]", "n[09-10,9]", "[1-3]",
		"r[1-2]n[01-03]", "n[9-10][9-10]", "a[1-2]b[1-2]c[1-3]", "a[1-2]b[3-4]c[5-6]d[7-8]", "n18446744073709551615",
	} {
		names, err := Expand(text)
		if err != nil {
			t.Fatal(err)
		}
		expand = append(expand, list{text, names})
	}
	for seed := range 300 {
		names := neighbours("n", "n1-", "").Example(seed)
		compressed := list{Compress(names), names}
		expand, compress = append(expand, lists(false).Example(seed), compressed), append(compress, compressed)
	}
	for some := range slices.Chunk(expand, 100) {
		for i, got := range strings.Split(scontrol(t, "hostnames", some, func(l list) string { return l.text }), "\n=\n") {
			if want := strings.Join(some[i].names, "\n"); got != want {
				t.Errorf("%s:\nSlurm has %q\nwant      %q", some[i].text, got, want)
			}
		}
	}
	for some := range slices.Chunk(compress, 100) {
		names := func(l list) string { return strings.Join(l.names, ",") }
		for i, got := range strings.Split(scontrol(t, "hostlist", some, names), ",=,") {
			if got != some[i].text {
				t.Errorf("%v:\nSlurm has %s\nwant      %s", some[i].names, got, some[i].text)
			}
		}
	}
}

// scontrol returns Slurm's answer to all lists at once, with "=" between them, which is a name for
// Slurm, but not for this package.
func scontrol(t *testing.T, show string, lists []list, text func(list) string) string {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	if err := os.WriteFile(conf, []byte("ClusterName=x\nSlurmctldHost=localhost\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, l := range lists {
		texts = append(texts, text(l))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "scontrol", "show", show, strings.Join(texts, ",=,"))
	cmd.Env = append(os.Environ(), "SLURM_CONF="+conf)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("scontrol show %s: %v\n%.2000s", show, err, out)
	}
	answer := strings.TrimSuffix(string(out), "\n")
	if got := 1 + strings.Count(answer, "="); got != len(lists) {
		t.Fatalf("%d answers to %d lists:\n%.2000s", got, len(lists), answer)
	}
	return answer
}
