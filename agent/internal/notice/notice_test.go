package notice

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestNoticesThatAreNews checks that a notice is news if its end comes earlier than the end in the
// file. The file may have any content.
func TestNoticesThatAreNews(t *testing.T) {
	old := Notice{Deadline: time.Now().Add(time.Hour).UTC(), Why: "maintenance"}
	for _, c := range []struct {
		name   string
		in     time.Duration
		sooner bool
	}{
		{"the same, told again", time.Hour - 10*time.Millisecond, false},
		{"later", 2 * time.Hour, false},
		{"sooner", time.Minute, true},
	} {
		if n := (Notice{Deadline: time.Now().Add(c.in)}); n.sooner(old) != c.sooner {
			t.Errorf("%s: sooner is %v", c.name, !c.sooner)
		}
	}
	path := filepath.Join(t.TempDir(), "notice.json")
	if _, err := Read(path); err == nil {
		t.Error("there is a notice where none is")
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil {
		t.Error("a pipe is taken for a notice")
	}
}
