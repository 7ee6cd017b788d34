// Package mutants shows that the random worlds of a decision maker can fail: a simulator that cannot proves nothing. It is for tests.
package mutants

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Worlds is how many of n worlds a test makes where it is run by itself: a tenth under the race detector, which makes them six times
// slower and finds nothing in what one goroutine does. MustDie makes all of them, without it.
func Worlds(n int) int {
	if raced {
		return n / 10
	}
	return n
}

// MustDie plants each bug of testdata/mutants.txt in the package that is tested, one at a time, and holds that its TestWorld finds it,
// and finds none where none is planted.
// A bug is a sentence, a file, and the lines that it replaces (-) by others (+); an empty line follows. Behind the file may stand the number
// of a world that has found it, which is asked first (-world-seed): "state.go, world 7".
func MustDie(t *testing.T) {
	text, err := os.ReadFile("testdata/mutants.txt")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	field := &field{files: map[string]*file{}}
	var beds []bed
	for entry := range strings.SplitSeq(string(text), "\n\n") {
		if strings.HasPrefix(entry, "#") {
			continue
		}
		m, err := parseMutant(entry)
		if err == nil {
			var b bed
			b, err = field.plant(m, len(beds)+1)
			beds = append(beds, b)
		}
		if err != nil {
			t.Fatalf("%s: %v", m.name, err)
		}
	}
	worlds := filepath.Join(dir, "worlds.test")
	build(t, worlds, field.overlay())
	if out, err := run(worlds, 0, ""); err != nil {
		t.Fatalf("the worlds fail where no bug is planted: %v\n%s", err, out)
	}
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, b := range beds {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			worlds := worlds
			if b.alone != nil {
				worlds = filepath.Join(t.TempDir(), "worlds.test")
				build(t, worlds, b.alone)
			}
			out, err := run(worlds, i+1, b.world)
			if err == nil && b.world != "" {
				t.Logf("world %s does not find it any more", b.world)
				out, err = run(worlds, i+1, "")
			}
			switch {
			case err == nil:
				t.Error("the worlds did not find this bug")
			case strings.Contains(string(out), "panic: test timed out") ||
				!strings.Contains(string(out), "--- FAIL: TestWorld") && !strings.Contains(string(out), "panic: "):
				t.Errorf("the worlds did not run: %v\n%s", err, out)
			default:
				t.Logf("%s", out)
			}
		})
	}
}

// build makes the test binary of this directory's package, in which some files are others for the compiler alone.
func build(t *testing.T, name string, files map[string]string) {
	dir := t.TempDir()
	replace := map[string]string{}
	for path, text := range files {
		to := filepath.Join(dir, strconv.Itoa(len(replace))+".go")
		write(t, to, []byte(text))
		replace[path] = to
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "overlay.json"), overlay)
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", name, "-overlay", filepath.Join(dir, "overlay.json"),
		"-vet=off", "-ldflags=-s -w", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// run makes the worlds, or just one, with one bug, or with none for 0. They end with the tests that want them.
func run(worlds string, planted int, world string) ([]byte, error) {
	c := exec.Command(worlds, "-test.run=^TestWorld$", "-test.timeout=9m")
	if world != "" {
		c.Args = append(c.Args, "-world-seed="+world)
	}
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%d", variable, planted))
	return c.CombinedOutput()
}

func write(t *testing.T, name string, data []byte) {
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
