package logs

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/pipetest"
)

// TestBarsAreReadNowAndThen writes an update as soon as the last one is in its file, with and
// without splicing. A flush puts all of them into the file.
func TestBarsAreReadNowAndThen(t *testing.T) {
	for _, exact := range []bool{false, true} {
		d := openDir(t, t.TempDir())
		rank := newRank(t, d, RankOptions{Exact: exact})
		o := newFollower(Filter{Attempt: AllAttempts})
		d.hub.join(o)
		defer d.hub.leave(o)
		var all strings.Builder
		update := func() {
			text := fmt.Sprintf("\r%d of many", all.Len())
			all.WriteString(text)
			if _, err := rank.Stdout.WriteString(text); err != nil {
				t.Fatal(err)
			}
		}
		reads, began := 0, time.Now()
		for time.Since(began) < 10*readBarEvery {
			update()
			select {
			case <-o.wake:
			case <-time.After(time.Minute):
				t.Fatal("an update is not read")
			}
			reads++
		}
		// An exact pump paces from the second update on.
		if most := 13; reads > most {
			t.Errorf("exact %v: %d updates were read one by one in %v, want %d at most", exact, reads, 10*readBarEvery, most)
		}
		update()
		if err := rank.Flush(pipetest.Soon(t)); err != nil {
			t.Error(err)
		}
		if got := readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log"); got != all.String() {
			t.Errorf("exact %v: the file has %q, want %q", exact, got, all.String())
		}
		if err := rank.Close(pipetest.Soon(t)); err != nil {
			t.Error(err)
		}
	}
}

// TestABarIsNotHeldUp: pacing does not delay a rank that fills its pipe with progress bars.
func TestABarIsNotHeldUp(t *testing.T) {
	d := openDir(t, t.TempDir())
	rank := newRank(t, d, RankOptions{})
	text := strings.Repeat("\r"+strings.Repeat("#", 80), 100)
	began := time.Now()
	const times = 4000 // 32 MB; a pipe holds an eighth of a megabyte
	for range times {
		if _, err := rank.Stdout.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	// A pump that left each full pipe unread for the pause would need 12 s.
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("%d bytes took %v", times*len(text), took)
	}
	if err := rank.Close(pipetest.Soon(t)); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(d.Path() + "/attempt-0/rank-0.stdout.log"); err != nil || info.Size() != int64(times*len(text)) {
		t.Errorf("the file: %v, %v", info, err)
	}
}
