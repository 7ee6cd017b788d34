package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
)

// window is a number of events in a time: N, or N/TIME.
type window struct {
	number *int
	time   *time.Duration
}

func (w window) Type() string { return "N" }

func (w window) String() string {
	switch {
	case w.number == nil:
		return ""
	case *w.time == 0:
		return strconv.Itoa(*w.number)
	}
	return fmt.Sprintf("%d/%v", *w.number, *w.time)
}

func (w window) Set(text string) error {
	number, limit, limited := strings.Cut(text, "/")
	n, err := strconv.Atoi(number)
	var t time.Duration
	if err == nil && limited {
		t, err = time.ParseDuration(limit)
	}
	if err != nil || n < 0 || limited && t <= 0 {
		return fmt.Errorf("%q: a number of at least 0, or N/TIME such as 3/1h", text)
	}
	*w.number, *w.time = n, t
	return nil
}

// exitCodes are ENDING=CODE,...
type exitCodes struct{ codes *map[report.Ending]int }

func (e exitCodes) Type() string { return "ENDING=CODE" }

func (e exitCodes) String() string { return "" }

func (e exitCodes) Set(text string) error {
	codes := map[report.Ending]int{}
	for pair := range strings.SplitSeq(text, ",") {
		ending, number, _ := strings.Cut(pair, "=")
		code, err := strconv.Atoi(number)
		if err != nil {
			return fmt.Errorf("%q: ENDING=CODE such as preempted=75", pair)
		}
		codes[report.Ending(ending)] = code
	}
	*e.codes = codes
	return nil
}
