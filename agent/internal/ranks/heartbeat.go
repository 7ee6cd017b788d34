package ranks

import (
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/process/logs"
)

// Heartbeat is what a rank wrote to its heartbeat file: "STEP [TOTAL]". The zero Heartbeat means no
// heartbeat.
type Heartbeat struct {
	At   time.Time
	text string
}

// maxHeartbeat bounds what is read of a heartbeat file, in bytes.
const maxHeartbeat = 256

// LastHeartbeat reads the newest heartbeat of a rank. If the heartbeat is only half written, the
// next call sees it.
func LastHeartbeat(output *logs.Rank) Heartbeat {
	f, err := output.OpenHeartbeat()
	if err != nil {
		return Heartbeat{}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return Heartbeat{}
	}
	text, err := io.ReadAll(io.LimitReader(f, maxHeartbeat))
	if err != nil {
		return Heartbeat{}
	}
	return Heartbeat{info.ModTime(), string(text)}
}

// Step returns the step that the program has reached, if the heartbeat has it.
func (h Heartbeat) Step() (int64, bool) {
	words := strings.Fields(h.text)
	if len(words) == 0 {
		return 0, false
	}
	step, err := strconv.ParseInt(words[0], 10, 64)
	return step, err == nil && step >= 0
}

// Total returns how many steps the program will take, if the heartbeat has it.
func (h Heartbeat) Total() (int64, bool) {
	words := strings.Fields(h.text)
	if len(words) < 2 {
		return 0, false
	}
	total, err := strconv.ParseInt(words[1], 10, 64)
	return total, err == nil && total > 0
}

// stepEvery is how often a step is reported. The coordinator logs each report.
const stepEvery = time.Minute

// ReportSteps reports the step of rank 0, if it is among these ranks. It reports once a minute, and
// once more at the end, because the next attempt is compared with that step. Ticks, if not nil,
// replaces the minute. The caller must call stop once the ranks have exited.
func ReportSteps(all []Rank, ticks <-chan time.Time, report func(step int64, ago time.Duration)) (stop func()) {
	i := slices.IndexFunc(all, func(r Rank) bool { return r.Bundle.Rank == 0 })
	if i < 0 {
		return func() {}
	}
	var last int64
	check := func() {
		h := LastHeartbeat(all[i].Output)
		if step, ok := h.Step(); ok && step > 0 && step != last {
			last = step
			report(step, max(0, time.Since(h.At)))
		}
	}
	over := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		if ticks == nil {
			ticks = time.Tick(stepEvery)
		}
		for {
			select {
			case <-over:
				return
			case <-ticks:
				check()
			}
		}
	})
	return func() {
		close(over)
		running.Wait()
		check()
	}
}
