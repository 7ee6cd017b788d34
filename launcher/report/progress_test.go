package report_test

import (
	"math"
	"testing"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
)

func TestProgress(t *testing.T) {
	nan := math.NaN()
	now := time.Now()
	usage := func(step, total, took float64) report.Usage {
		return report.Usage{Step: step, Total: total, StepTime: took}
	}
	late := func(u report.Usage, age float64) report.Usage {
		u.BeatAge = age
		return u
	}
	for _, c := range []struct {
		ranks []report.Usage
		want  string
		left  time.Duration
	}{
		{nil, "", 0},
		{[]report.Usage{usage(nan, nan, nan)}, "", 0},
		{[]report.Usage{usage(7, nan, nan), usage(nan, nan, nan)}, "step 7", 0},
		{[]report.Usage{usage(7, 100, nan)}, "step 7 of 100", 0},
		{[]report.Usage{usage(7, nan, 0.25), usage(8, nan, 0.5), usage(6, nan, 2)}, "step 8, 2 steps a second", 0},
		{[]report.Usage{usage(7, nan, 1.5)}, "step 7, 1.5 s a step", 0},
		{[]report.Usage{usage(90, 100, 1.5)}, "step 90 of 100, 1.5 s a step, done ", 15 * time.Second},
		{[]report.Usage{usage(0, 1e300, 1)}, "", 0},
		{[]report.Usage{late(usage(90, 100, 0.2), 55), late(usage(90, 100, 0.2), 56)}, "step 90 of 100, no heartbeat for 55s", 0},
		{[]report.Usage{late(usage(90, 100, 0.2), 55), late(usage(90, 100, 0.2), 1)}, "step 90 of 100, 5 steps a second, done ", 2 * time.Second},
		{[]report.Usage{late(usage(90, 100, 20), 55)}, "step 90 of 100, 20 s a step, done ", 200 * time.Second},
		{[]report.Usage{late(usage(7, nan, nan), 31)}, "step 7, no heartbeat for 31s", 0},
	} {
		p := report.ProgressOf(c.ranks, now)
		if got := p.String(); c.want != "" && (len(got) < len(c.want) || got[:len(c.want)] != c.want) || c.left == 0 && got != c.want && c.want != "" {
			t.Errorf("%+v: %q, want %q", c.ranks, got, c.want)
		}
		if got := p.Done; c.left == 0 && !got.IsZero() || c.left > 0 && !got.Equal(now.Add(c.left)) {
			t.Errorf("%+v: done at %v", c.ranks, got)
		}
	}
}
