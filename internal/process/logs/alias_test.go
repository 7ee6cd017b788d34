package logs

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/golaunch/golaunch/internal/process/console"
)

// TestAlias gives a rank's files a second name, in a first and a second run.
func TestAlias(t *testing.T) {
	base := t.TempDir()
	for _, want := range []string{"x\n", "x\nx\n"} {
		d, err := OpenDir(base, "j")
		if err != nil {
			t.Fatal(err)
		}
		r, err := d.Rank(RankOptions{Rank: 5, Attempt: 1, Alias: "attempt_1/3"})
		if err != nil {
			t.Fatal(err)
		}
		alias := filepath.Join(d.Path(), "attempt_1/3")
		if text, err := os.ReadFile(filepath.Join(alias, "stderr.log")); err != nil || len(text) > 0 {
			t.Errorf("stderr.log of a silent rank: %q, %v", text, err)
		}
		if _, err := os.Lstat(filepath.Join(alias, "error.json")); !os.IsNotExist(err) {
			t.Errorf("error.json of a rank without an error: %v", err)
		}
		if err := os.WriteFile(r.ErrorFile(), []byte("boom"), 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, r, `echo x`)
		for name, want := range map[string]string{"stdout.log": want, "error.json": "boom"} {
			if text, err := os.ReadFile(filepath.Join(alias, name)); err != nil || string(text) != want {
				t.Errorf("%s has %q (%v), want %q", name, text, err, want)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHiddenAndBare shows each set of streams as requested.
func TestHiddenAndBare(t *testing.T) {
	for _, c := range []struct {
		hidden, bare console.Stream
		out, err     string
	}{
		{0, 0, "[0] o\n", "[0] e\n"},
		{console.Stdout, 0, "", "[0] e\n"},
		{console.Stderr, console.Stdout, "o\n", ""},
		{0, console.Stdout | console.Stderr, "o\n", "e\n"},
		{console.Stdout | console.Stderr, console.Stdout, "", ""},
	} {
		var out, words bytes.Buffer
		console := console.New(&out, &words)
		run(t, newRank(t, openDir(t, t.TempDir()), RankOptions{Console: console, Prefix: "[0] ", Hidden: c.hidden, Bare: c.bare}),
			`echo o; echo e >&2`)
		if err := console.Close(); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.out || words.String() != c.err {
			t.Errorf("hidden %d, bare %d: %q and %q, want %q and %q", c.hidden, c.bare, &out, &words, c.out, c.err)
		}
	}
}
