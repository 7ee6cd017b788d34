package gpu

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var errHangs = errors.New("it hangs")

// A failing driver is asked 5 times, and then at most once a minute. A working driver is always
// asked.
func TestRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r rest
		now, last, failures := time.Unix(1e9, 0), time.Time{}, 0
		for range rapid.IntRange(1, 50).Draw(t, "wishes") {
			now = now.Add(rapid.SampledFrom([]time.Duration{1, time.Second, pause - 1, pause}).Draw(t, "later"))
			resting, why := r.at(now)
			if want := failures >= 5 && now.Sub(last) < time.Minute; resting != want || resting != errors.Is(why, errHangs) {
				t.Fatalf("%d failures, the last %v ago: left alone %v (%v), want %v", failures, now.Sub(last), resting, why, want)
			}
			switch {
			case resting:
			case rapid.IntRange(0, 9).Draw(t, "luck") == 0:
				r, failures = rest{}, 0
			default:
				r, failures, last = r.failed(now, errHangs), failures+1, now
			}
		}
	})
}

func TestRestWithoutDriver(t *testing.T) {
	now := time.Unix(1e9, 0)
	r := absent(now)
	for after, want := range map[time.Duration]bool{0: true, time.Minute - 1: true, time.Minute: false} {
		if resting, why := r.at(now.Add(after)); resting != want || why != nil {
			t.Errorf("after %v: left alone %v (%v), want %v without a reason", after, resting, why, want)
		}
	}
	if resting, _ := r.failed(now.Add(time.Hour), errHangs).at(now.Add(time.Hour)); resting {
		t.Error("left alone after one failure")
	}
}
