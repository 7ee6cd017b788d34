package jobdir

import (
	"errors"
	"io/fs"
	"os"
	"testing"
)

// TestGiveUp: GiveUp removes the directory of the job that this node gives up, and no other
// directory.
func TestGiveUp(t *testing.T) {
	r := &Run{Chosen: t.TempDir(), ID: "run", Name: func(job string) string { return job }}
	if err := r.Open("a"); err != nil {
		t.Fatal(err)
	}
	path := r.Path()
	if err := r.GiveUp("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the directory of a, which goes on: %v", err)
	}
	if err := r.GiveUp("b"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) || r.Path() != "" {
		t.Errorf("the directory of a is there when the node has joined b: %v", err)
	}
}
