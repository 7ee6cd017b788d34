package agent

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/agent/internal/notice"
	"github.com/golaunch/golaunch/internal/core/job"
)

// TestTheEarliestNotice checks that ranks get a notice only if it announces an earlier end than the
// last one.
func TestTheEarliestNotice(t *testing.T) {
	w := obeying(t, `n=0
trap 'n=$((n+1)); echo told $n: $(cat $GOLAUNCH_NOTICE_FILE)' USR1
echo up
while :; do sleep 1000 & wait; done`)
	w.jobs["test"].work.Task.NoticeSignal = syscall.SIGUSR1
	w.order(startOf(0))
	both := func(text string) {
		for rank := range 2 {
			w.screen.await(t, fmt.Sprintf("[r%d n1] %s", rank, text))
		}
	}
	both("up")
	notify := func(within time.Duration, why string) {
		w.order(job.Notice{Node: "n1", Within: within, Why: why})
	}
	notify(time.Hour, "maintenance")
	both("told 1: ")
	notify(2*time.Hour, "later")
	notify(time.Hour, "repeated")
	notify(20*time.Minute, "spot instance")
	both("told 2: ")
	notify(10*time.Minute, "SIGTERM")
	both("told 3: ")
	if text := w.screen.String(); strings.Contains(text, "later") || strings.Contains(text, "repeated") || !strings.Contains(text, "SIGTERM") {
		t.Errorf("the ranks got:\n%s", text)
	}
	u := w.jobs["test"].attempts[0]
	u.mu.Lock()
	ranks := slices.Clone(u.ranks)
	u.mu.Unlock()
	for _, r := range ranks {
		file := r.Output.NoticeFile()
		n, err := notice.Read(file)
		if left := time.Until(n.Deadline); err != nil || n.Why != "SIGTERM" || left > 10*time.Minute || left < 5*time.Minute {
			t.Errorf("rank %d got %+v: %v", r.Bundle.Rank, n, err)
		}
		if err := os.WriteFile(file+notice.ReadySuffix, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.journal.await(t, `"ready"`)
}
