package main

import (
	"io"
	"os/exec"
	"testing"
)

// TestAPrompt: the prompt of a single rank appears before it is answered.
func TestAPrompt(t *testing.T) {
	cmd := exec.Command(golaunch(t), "--coordinator", "none", "--procs-per-node", "1", "--", "sh", "-c",
		`printf '\r50%%'; printf '\r100%%\n'; printf 'name? '; read name; echo hello $name`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, cmd)
	p.line(`\r50%\r100%\nname\? `)
	if _, err := io.WriteString(in, "Ann\n"); err != nil {
		t.Fatal(err)
	}
	p.ends(0, "hello Ann\n")
}
