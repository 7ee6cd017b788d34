package top

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// unknown stands for a value that is not known.
const unknown = "-"

func known(v float64) bool { return !math.IsNaN(v) }

// span is a time in two units at most: 7s, 2m05s, 3h12m, 4d03h.
func span(d time.Duration) string {
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

// age is a number of seconds as a span; a number that no clock counts is not known.
func age(seconds float64) string {
	if !known(seconds) || seconds > 1e9 {
		return unknown
	}
	return span(time.Duration(seconds * float64(time.Second)))
}

// stepSeconds is the time of a step: 4ms, 0.43s, 12.3s, 2m05s.
func stepSeconds(v float64) string {
	switch {
	case !known(v):
		return unknown
	case v < 0.0995:
		return fmt.Sprintf("%.0fms", v*1000)
	case v < 9.995:
		return fmt.Sprintf("%.2fs", v)
	case v < 60:
		return fmt.Sprintf("%.1fs", v)
	}
	return age(v)
}

func whole(v float64) string {
	if !known(v) {
		return unknown
	}
	return strconv.FormatFloat(math.Floor(v), 'f', 0, 64)
}

func percent(v float64) string {
	if !known(v) {
		return unknown
	}
	return fmt.Sprintf("%.0f%%", v*100)
}

func watts(v float64) string {
	if !known(v) {
		return unknown
	}
	return fmt.Sprintf("%.0fW", v)
}

func tenths(v float64) string {
	if !known(v) {
		return unknown
	}
	return fmt.Sprintf("%.1f", v)
}

// size is a number of bytes in powers of 1024: 512B, 9.3K, 66G.
func size(v float64) string {
	if !known(v) {
		return unknown
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

// plural is a number of things: 1 rank, 2 ranks.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}
