// Package mutants shows that the random worlds of a decision maker can fail: a simulator that cannot proves nothing. It is for tests.
package mutants

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// MustDie plants each bug of testdata/mutants.txt in the package that is tested, one at a time, and holds that its TestWorld finds it.
// A bug is a sentence, a file, and the lines that it replaces (-) by others (+); an empty line follows.
func MustDie(t *testing.T) {
	text, err := os.ReadFile("testdata/mutants.txt")
	if err != nil {
		t.Fatal(err)
	}
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for entry := range strings.SplitSeq(string(text), "\n\n") {
		if strings.HasPrefix(entry, "#") {
			continue
		}
		m := parseMutant(t, entry)
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			m.mustDie(t)
		})
	}
}

// mutant is a bug: in a file, old becomes new.
type mutant struct{ name, file, old, new string }

func parseMutant(t *testing.T, entry string) mutant {
	lines := strings.Split(strings.TrimSpace(entry), "\n")
	if len(lines) < 3 {
		t.Fatalf("a mutant has a sentence, a file, - and +, not %q", entry)
	}
	m := mutant{name: lines[0], file: lines[1]}
	for _, line := range lines[2:] {
		switch {
		case strings.HasPrefix(line, "-"):
			m.old += line[1:] + "\n"
		case strings.HasPrefix(line, "+"):
			m.new += line[1:] + "\n"
		default:
			t.Fatalf("%s: unexpected line %q", m.name, line)
		}
	}
	m.old, m.new = strings.TrimSuffix(m.old, "\n"), strings.TrimSuffix(m.new, "\n")
	return m
}

// mustDie runs the worlds with the bug in place, which an overlay puts there for the compiler alone.
func (m mutant) mustDie(t *testing.T) {
	file, err := filepath.Abs(m.file)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		t.Fatalf("%s has %q %d times; the mutant needs it once", m.file, m.old, n)
	}
	dir := t.TempDir()
	mutated := filepath.Join(dir, filepath.Base(m.file))
	write(t, mutated, []byte(strings.Replace(string(source), m.old, m.new, 1)))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "overlay.json"), overlay)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "test", "-overlay", filepath.Join(dir, "overlay.json"), "-vet=off", "-count=1",
		"-ldflags=-s -w", "-run=^TestWorld$", ".").CombinedOutput()
	switch {
	case err == nil:
		t.Error("the worlds did not find this bug")
	case !strings.Contains(string(out), "--- FAIL: TestWorld") && !strings.Contains(string(out), "panic: "):
		t.Errorf("the worlds did not run: %v\n%s", err, out)
	default:
		t.Logf("%s", out)
	}
}

func write(t *testing.T, name string, data []byte) {
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
