package units

import (
	"math"
	"testing"
	"time"
)

func TestUnits(t *testing.T) {
	for got, want := range map[string]string{
		Span(59 * time.Second): "59s", Span(125 * time.Second): "2m05s", Span(192 * time.Minute): "3h12m", Span(99 * time.Hour): "4d03h", Span(-1): "0s",
		Age(math.NaN()): "-", Age(math.Inf(1)): "-", StepSeconds(0.004): "4ms", StepSeconds(0.43): "0.43s", StepSeconds(12.34): "12.3s", StepSeconds(90): "1m30s",
		Size(0): "0B", Size(1023.6): "1.0K", Size(1 << 20): "1.0M", Size(66 << 30): "66G", Size(math.NaN()): "-", Size(1 << 60): "1024P",
		Percent(0.971): "97%", Whole(12.9): "12", Watts(610.4): "610W", Plural(1, "rank"): "1 rank", Plural(0, "rank"): "0 ranks",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
