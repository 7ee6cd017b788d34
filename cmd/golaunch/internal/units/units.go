// Package units formats numbers for people, short: 2m05s, 0.43s, 9.3K. NaN is an unknown number.
package units

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Unknown is printed for an unknown value.
const Unknown = "-"

// Known reports whether a value is known.
func Known(v float64) bool { return !math.IsNaN(v) }

// OrNil returns a pointer to a value, or nil if it is unknown or infinite, which JSON cannot say.
func OrNil(v float64) *float64 {
	if !Known(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// Mean returns the mean of values; NaN if there are none.
func Mean(all []float64) float64 {
	sum := 0.0
	for _, v := range all {
		sum += v
	}
	return sum / float64(len(all))
}

// Median returns the median of values, the higher one of two; NaN if there are none.
func Median(all []float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// Span is a time in two units at most: 7s, 2m05s, 3h12m, 4d03h.
func Span(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// Age is a number of seconds as a span; unknown beyond 30 years.
func Age(seconds float64) string {
	if !Known(seconds) || seconds > 1e9 {
		return Unknown
	}
	return Span(time.Duration(seconds * float64(time.Second)))
}

// StepSeconds is the time of a step: 4ms, 0.43s, 12.3s, 2m05s.
func StepSeconds(v float64) string {
	switch {
	case !Known(v):
		return Unknown
	case v < 0.0995:
		return fmt.Sprintf("%.0fms", v*1000)
	case v < 9.995:
		return fmt.Sprintf("%.2fs", v)
	case v < 60:
		return fmt.Sprintf("%.1fs", v)
	}
	return Age(v)
}

// Whole is a number without its fraction.
func Whole(v float64) string {
	if !Known(v) {
		return Unknown
	}
	return strconv.FormatFloat(math.Floor(v), 'f', 0, 64)
}

// Percent is a share of 1 in percent: 43%.
func Percent(v float64) string {
	if !Known(v) {
		return Unknown
	}
	return fmt.Sprintf("%.0f%%", v*100)
}

// Watts is a power.
func Watts(v float64) string {
	if !Known(v) {
		return Unknown
	}
	return fmt.Sprintf("%.0fW", v)
}

// Tenths is a number with one digit of its fraction.
func Tenths(v float64) string {
	if !Known(v) {
		return Unknown
	}
	return fmt.Sprintf("%.1f", v)
}

// Size is a number of bytes in powers of 1024: 512B, 9.3K, 66G.
func Size(v float64) string {
	if !Known(v) {
		return Unknown
	}
	for _, unit := range []string{"B", "K", "M", "G", "T"} {
		switch {
		case v < 9.95 && unit != "B":
			return fmt.Sprintf("%.1f%s", v, unit)
		case v < 1023.5:
			return fmt.Sprintf("%.0f%s", v, unit)
		}
		v /= 1024
	}
	return fmt.Sprintf("%.0fP", v)
}

// Plural is a number of things with their name: 1 rank, 2 ranks.
func Plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

// Ranks formats sorted ranks with a prefix: r0,r8-15.
func Ranks(prefix string, ranks []int) string {
	var parts []string
	for i := 0; i < len(ranks); {
		end := i
		for end+1 < len(ranks) && ranks[end+1] == ranks[end]+1 {
			end++
		}
		if parts = append(parts, prefix+strconv.Itoa(ranks[i])); end > i {
			parts[len(parts)-1] += "-" + strconv.Itoa(ranks[end])
		}
		i = end + 1
	}
	return strings.Join(parts, ",")
}
