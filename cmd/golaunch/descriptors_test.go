package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestRanksInheritNoDescriptors: ranks inherit no descriptors of the program that has started
// golaunch, such as locks and pipes.
func TestRanksInheritNoDescriptors(t *testing.T) {
	t.Parallel()
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, args := range [][]string{{"-n", "2"}, {"--simulate", "--nodes", "2", "--procs-per-node", "1"}} {
		cmd := exec.Command(golaunch(t), append(args, "--", "sh", "-c", "for f in 3 4 5 6 7 8 9 10 11; do [ ! -e /proc/$$/fd/$f ] || echo rank $RANK has $f; done; echo rank $RANK ends")...)
		for range 9 {
			cmd.ExtraFiles = append(cmd.ExtraFiles, file)
		}
		p := start(t, cmd)
		p.ends(0, "rank 0 ends", "rank 1 ends")
		if _, text := p.wait(); strings.Contains(text, " has ") {
			t.Error("a rank has descriptors of golaunch's parent")
		}
	}
}
