// Package mutants shows that the random worlds of a decision maker can fail: a simulator that cannot proves nothing. It is for tests.
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

// Worlds is how many of n worlds a test makes where it is run by itself: a tenth under the race detector, which makes them six times
// slower and finds nothing in what one goroutine does. MustDie makes all of them, without it, for [suite.All].
func Worlds(n int) int {
	if raced {
		return n / 10
	}
	return n
}

// record has MustDie look for worlds and write them down.
var record = flag.Bool("record", false, "have TestMutants write the worlds that find bugs into testdata/mutants.txt")

// MustDie plants each bug of testdata/mutants.txt in the package that is tested, one at a time, and holds that its TestWorld finds it,
// and finds none where none is planted.
// A bug is a sentence, a file, and the lines that it replaces (-) by others (+); an empty line follows. Behind the file stands the number
// of a world that has found it (-world-seed), which is made alone: "state.go, world 7". Only where that does not find it, since the code has
// changed, are all worlds made; go test -run TestMutants -record then writes another number. What stands as "state.go, all worlds" is found by no
// world alone, and waits for [suite.All], for which all worlds are made where no bug is planted, too.
func MustDie(t *testing.T) {
	text, err := os.ReadFile(list)
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
	sound(t, worlds, beds)
	found := make([]string, len(beds))
	t.Run("bugs", func(t *testing.T) {
		slots := make(chan struct{}, runtime.GOMAXPROCS(0))
		for i, b := range beds {
			t.Run(b.name, func(t *testing.T) {
				t.Parallel()
				if b.world == allWorlds && !suite.All() && !*record {
					t.Skip("only all worlds together find it, in make test-all")
				}
				slots <- struct{}{}
				defer func() { <-slots }()
				worlds := worlds
				if b.alone != nil {
					worlds = filepath.Join(t.TempDir(), "worlds.test")
					build(t, worlds, b.alone)
				}
				found[i] = dies(t, worlds, i+1, b.world)
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

// sound holds that worlds find nothing where no bug is planted: those that find bugs, or all.
func sound(t *testing.T, worlds string, beds []bed) {
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
			t.Fatalf("world %s fails where no bug is planted: %v\n%s", cmp.Or(world, "1 or a later one"), err, out)
		}
	}
}

// dies holds that a bug is found, and returns the world that does so if it is asked to look for one.
func dies(t *testing.T, worlds string, planted int, world string) string {
	if world == allWorlds {
		world = ""
	}
	if world != "" && finds(worlds, planted, world) {
		return world
	}
	if world != "" && !*record {
		t.Logf("world %s does not find it any more; go test -run TestMutants -record finds one that does", world)
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
	for n := 1; n <= 50; n++ { // the code may have panicked, or that world may have found it by chance
		if world := strconv.Itoa(n); finds(worlds, planted, world) {
			return world
		}
	}
	return allWorlds
}

// allWorlds is in the place of a world's number.
const allWorlds = "all worlds"

// seed is how the worlds name the one that failed; package rapid says it in its own way.
var seed = regexp.MustCompile(`(?:-world-seed|-rapid\.seed)=(\d+)`)

// finds says that a world finds a bug: once, or each of several times before it is recorded, since in some worlds the order of goroutines is
// Go's to choose.
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
