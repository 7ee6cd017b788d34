package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestOOMClaims(t *testing.T) {
	file := filepath.Join(t.TempDir(), "memory.events")
	count := func(n int) {
		if err := os.WriteFile(file, fmt.Appendf(nil, "low 0\noom 9\noom_kill %d\noom_group_kill 0\n", n), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	count(3)
	c := &OOMCounter{file: file, seen: 3}
	if c.Claim() {
		t.Error("claimed what came before")
	}
	count(5)
	if !c.Claim() || !c.Claim() || c.Claim() {
		t.Error("two kills are not two claims")
	}
}
