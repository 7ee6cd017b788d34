package stacks

import (
	"encoding/hex"
	"encoding/json"
	"os/exec"
	"testing"

	"pgregory.net/rapid"
)

// TestLines compares the lines that this package reads in tables with the lines that each Python
// reports.
func TestLines(t *testing.T) {
	for _, python := range pythons(t) {
		t.Run(version(python), func(t *testing.T) {
			out, err := exec.Command(python, "testdata/lines.py").Output()
			if err != nil {
				t.Fatal(err)
			}
			var said struct {
				Minor int
				Codes []struct {
					Name, Table string
					First       int
					Lines       [][3]*int
				}
			}
			if err := json.Unmarshal(out, &said); err != nil {
				t.Fatal(err)
			}
			instructions := 0
			for _, c := range said.Codes {
				table, err := hex.DecodeString(c.Table)
				if err != nil {
					t.Fatal(err)
				}
				co := code{first: c.First, lines: table, instructions: 1 << 20}
				for _, r := range c.Lines {
					want := 0
					if r[2] != nil {
						want = *r[2]
					}
					for at := *r[0]; at < *r[1]; at += 2 {
						instructions++
						if got := co.line(place(at, said.Minor), said.Minor); got != want {
							t.Fatalf("%s, which begins in line %d, is in line %d at %d, not %d", c.Name, c.First, want, at, got)
						}
					}
				}
			}
			if instructions < 10000 {
				t.Errorf("only %d instructions were looked at", instructions)
			}
		})
	}
}

// place returns the value by which a frame of a Python version says that it is at a byte of a
// function, whose instructions are at 1<<20.
func place(at, minor int) uint64 {
	switch {
	case minor >= 11:
		return 1<<20 + uint64(at)
	case minor == 10:
		return uint64(at / 2)
	}
	return uint64(at)
}

func TestAnyLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		co := code{
			first: int(rapid.Int32().Draw(t, "first")), lines: rapid.SliceOf(rapid.Byte()).Draw(t, "table"),
			instructions: rapid.Uint64Max(1<<48).Draw(t, "instructions"),
		}
		for minor := 9; minor <= 14; minor++ {
			at := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(co.instructions, co.instructions+200)).Draw(t, "at")
			if line := co.line(at, minor); line < 0 || line > 1<<30 {
				t.Fatalf("line %d of 3.%d is unknown", line, minor)
			}
		}
	})
}
