package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
)

// TestTheEarliestNotice counts: ranks hear of an end that is to come sooner than the one they know of, and of no other.
func TestTheEarliestNotice(t *testing.T) {
	w := obeying(t, `n=0
trap 'n=$((n+1)); echo told $n: $(cat $GOLAUNCH_NOTICE_FILE)' USR1
echo up
while :; do sleep 1000 & wait; done`)
	w.shares["test"].work.Task.NoticeSignal = syscall.SIGUSR1
	w.order(attempt(0))
	both := func(text string) {
		for rank := range 2 {
			w.screen.await(t, fmt.Sprintf("[r%d n1] %s", rank, text))
		}
	}
	both("up")
	notice := func(within time.Duration, why string) {
		w.order(job.Notice{Node: "n1", Within: within, Why: why})
	}
	notice(time.Hour, "maintenance")
	both("told 1: ")
	notice(2*time.Hour, "later")
	notice(time.Hour, "repeated")
	notice(20*time.Minute, "spot instance")
	both("told 2: ")
	notice(10*time.Minute, "SIGTERM")
	both("told 3: ")
	if text := w.screen.String(); strings.Contains(text, "later") || strings.Contains(text, "repeated") || !strings.Contains(text, "SIGTERM") {
		t.Errorf("the ranks were told:\n%s", text)
	}
	u := w.shares["test"].units[0]
	u.mu.Lock()
	ranks := slices.Clone(u.all)
	u.mu.Unlock()
	for _, r := range ranks {
		file := r.output.NoticeFile()
		n, err := readNotice(file)
		if left := time.Until(n.Deadline); err != nil || n.Why != "SIGTERM" || left > 10*time.Minute || left < 5*time.Minute {
			t.Errorf("rank %d was told %+v: %v", r.bundle.Rank, n, err)
		}
		if err := os.WriteFile(file+readySuffix, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.journal.await(t, `"ready"`)
}

// TestNoticesThatAreNews are of an end that comes sooner than the one in the file, which may be anything.
func TestNoticesThatAreNews(t *testing.T) {
	old := notice{Deadline: time.Now().Add(time.Hour).UTC(), Why: "maintenance"}
	for _, c := range []struct {
		name   string
		in     time.Duration
		sooner bool
	}{
		{"the same, told again", time.Hour - 10*time.Millisecond, false},
		{"later", 2 * time.Hour, false},
		{"sooner", time.Minute, true},
	} {
		if n := (notice{Deadline: time.Now().Add(c.in)}); n.sooner(old) != c.sooner {
			t.Errorf("%s: sooner is %v", c.name, !c.sooner)
		}
	}
	path := filepath.Join(t.TempDir(), "notice.json")
	if _, err := readNotice(path); err == nil {
		t.Error("there is a notice where none is")
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readNotice(path); err == nil {
		t.Error("a pipe is taken for a notice")
	}
}
