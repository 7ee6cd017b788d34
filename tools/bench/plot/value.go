package main

import (
	"fmt"
	"strconv"

	"github.com/golaunch/golaunch/tools/bench/record"
)

// scales are the steps of a unit, the largest first.
var scales = map[record.Unit][]struct {
	from, by float64
	name     string
}{
	record.Milliseconds: {{1000, 1000, "s"}, {0, 1, "ms"}},
	record.Bytes:        {{1e9, 1e9, "GB"}, {1e6, 1e6, "MB"}, {1e3, 1e3, "kB"}, {0, 1, "B"}},
	record.Processes:    {{0, 1, ""}},
	record.Share:        {{0, 1, ""}},
}

// say formats a value with its unit, in three digits or more.
func say(value float64, unit record.Unit) string {
	for _, s := range scales[unit] {
		if value < s.from {
			continue
		}
		text := digits(value / s.by)
		if s.name == "" {
			return text
		}
		return text + " " + s.name
	}
	return fmt.Sprintf("%v %s", value, unit) // below zero
}

func digits(value float64) string {
	switch {
	case value == float64(int(value)) || value >= 100:
		return strconv.FormatFloat(value, 'f', 0, 64)
	case value >= 10:
		return strconv.FormatFloat(value, 'f', 1, 64)
	}
	return strconv.FormatFloat(value, 'f', 2, 64)
}
