// Package mutants shows that the random worlds of a package find planted bugs: a simulator that
// cannot fail proves nothing. It is for tests.
package mutants

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// Worlds returns how many of n worlds a test makes when it runs by itself: a tenth under the race
// detector, which is six times slower and finds nothing in a single goroutine. MustDie always runs
// without it, and makes all worlds for [suite.All].
func Worlds(n int) int {
	if raced {
		return n / 10
	}
	return n
}

// record makes MustDie look for worlds and write them down.
var record = flag.Bool("record", false, "have TestMutants write the worlds that find bugs into testdata/mutants.txt")

// MustDie plants each bug of testdata/mutants.txt in the tested package, one at a time, and checks
// that the package's TestWorld finds it. It also checks that the same worlds pass without a bug.
//
// An entry is a sentence, the place of the bug, and the lines that it replaces (-) by others (+);
// an empty line ends it. The place is a function ("find"), a method ("State.find") or a type, in
// the tested package or in another one ("Log.Append in internal/log"). The lines must occur exactly
// once; indentation does not count. Behind the place stands a world that finds the bug
// ("State.find, world 7"): the test makes that world alone (-world-seed), and all worlds only if it
// no longer finds the bug. Then
//
//	go test -run TestMutants -record
//
// writes another number. "State.find, all worlds" marks a bug that no single world finds; it is
// tried for [suite.All] only.
func MustDie(t *testing.T) {
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	field := &field{packages: map[string]*sources{}}
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
			t.Errorf("%s: %v", m.name, err)
		}
	}
	if t.Failed() {
		return
	}
	worlds := filepath.Join(dir, "worlds.test")
	build(t, worlds, field.overlay())
	checkSound(t, worlds, beds)
	found := make([]string, len(beds))
	t.Run("bugs", func(t *testing.T) {
		slots := make(chan struct{}, runtime.GOMAXPROCS(0))
		for i, b := range beds {
			t.Run(b.name, func(t *testing.T) {
				t.Parallel()
				if b.world == allWorlds && !*record {
					suite.LeftToAll(t, "only all worlds together find it")
				}
				slots <- struct{}{}
				defer func() { <-slots }()
				worlds := worlds
				if b.alone != nil {
					worlds = filepath.Join(t.TempDir(), "worlds.test")
					build(t, worlds, b.alone)
				}
				found[i] = mustFind(t, worlds, i+1, b.world)
			})
		}
	})
	if *record && !t.Failed() {
		for i, b := range beds {
			text = recorded(text, b.mutant, found[i])
		}
		write(t, list, text)
	}
}

const list = "testdata/mutants.txt"

// checkSound checks that worlds pass without a bug: the worlds that find bugs, and for [suite.All]
// all worlds.
func checkSound(t *testing.T, worlds string, beds []bed) {
	t.Helper()
	asked := map[string]bool{"": suite.All()}
	for _, b := range beds {
		asked[b.world] = asked[b.world] || b.world != "" && b.world != allWorlds
	}
	for world, ask := range asked {
		if !ask {
			continue
		}
		if out, err := run(worlds, 0, world); err != nil {
			t.Fatalf("world %s fails without a planted bug: %v\n%s", cmp.Or(world, "1 or a later one"), err, out)
		}
	}
}

// mustFind checks that a bug is found. With -record it returns the world that finds it.
func mustFind(t *testing.T, worlds string, planted int, world string) string {
	if world == allWorlds {
		world = ""
	}
	if world != "" && finds(worlds, planted, world) {
		return world
	}
	if world != "" && !*record {
		t.Logf("world %s no longer finds it; go test -run TestMutants -record writes one that does", world)
	}
	out, err := run(worlds, planted, "")
	switch {
	case err == nil:
		t.Error("the worlds did not find this bug")
	case strings.Contains(string(out), "panic: test timed out") ||
		!strings.Contains(string(out), "--- FAIL: TestWorld") && !strings.Contains(string(out), "panic: "):
		t.Errorf("the worlds did not run: %v\n%s", err, out)
	default:
		t.Logf("%s", out)
	}
	if !*record || t.Failed() {
		return ""
	}
	if m := seed.FindStringSubmatch(string(out)); m != nil && finds(worlds, planted, m[1]) {
		return m[1]
	}
	for n := 1; n <= 50; n++ { // a panic names no world, and a world may have found the bug by chance
		if world := strconv.Itoa(n); finds(worlds, planted, world) {
			return world
		}
	}
	return allWorlds
}

// allWorlds stands in place of a world's number.
const allWorlds = "all worlds"

// seed finds the number of the world that failed, as TestWorld or package rapid prints it.
var seed = regexp.MustCompile(`(?:-world-seed|-rapid\.seed)=(\d+)`)

// finds reports whether a world finds a bug. Before a world is recorded, it must find the bug five
// times: some worlds depend on the order of goroutines.
func finds(worlds string, planted int, world string) bool {
	times := 1
	if *record {
		times = 5
	}
	for range times {
		if _, err := run(worlds, planted, world); err == nil {
			return false
		}
	}
	return true
}

// build makes the test binary of the tested package, with other text in place of some files.
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

// run makes one world, or all worlds if world is empty. It plants the bug with a number, or no bug
// for 0. A world that never ends has found its bug. A world without a bug may be slow on a busy
// machine.
func run(worlds string, planted int, world string) ([]byte, error) {
	c := exec.Command(worlds, "-test.run=^TestWorld$", "-test.timeout=9m")
	if world != "" {
		c.Args = append(c.Args, "-world-seed="+world)
		if planted != 0 {
			c.Args = append(c.Args, "-test.timeout=1m")
		}
	}
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the parent of Pdeathsig is a thread
	defer runtime.UnlockOSThread()
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%d", variable, planted))
	return c.CombinedOutput()
}

func write(t *testing.T, name string, data []byte) {
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
