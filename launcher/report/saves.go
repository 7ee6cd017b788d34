package report

import (
	"fmt"
	"math"
	"time"
)

// Save is a checkpoint that the ranks of a job wrote.
type Save struct {
	// Path is the checkpoint's directory or file, as the ranks name it.
	Path string `json:"path"`
	// Format names the library that wrote the checkpoint, such as "dcp" or "megatron"; empty while
	// unknown.
	Format string `json:"format,omitempty"`
	// Step is the step in the checkpoint's name; 0 if the name has none.
	Step  int64 `json:"step,omitempty"`
	Bytes int64 `json:"bytes"`
	// Began is when the first of the checkpoint's files was written, and Ended when the last of
	// them was written. Ended is zero before that.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"`
}

// Saves is what golaunch knows of a job's checkpoints.
type Saves struct {
	// Last is the newest complete checkpoint; nil if golaunch saw none.
	Last *Save `json:"last,omitempty"`
	// InFlight is the checkpoint that the ranks are writing; nil if there is none.
	InFlight *Save `json:"in_flight,omitempty"`
	// Every is the time between the last two checkpoints, in seconds; 0 if unknown.
	Every float64 `json:"every_seconds,omitempty"`
	// AtRisk is how long the job has trained since Last began, in seconds. A stop loses this work.
	// If the ranks restart on their own, AtRisk is the time since Last began. It is 0 without a
	// Last.
	AtRisk float64 `json:"at_risk_seconds"`
	// AfterNotice says that the ranks completed Last after the job's end had been announced to
	// them.
	AfterNotice bool `json:"after_notice"`
}

// String returns the save in one line: "step 1200 in /c/step-1200, 4.1 GiB, 37 s". The size and the
// time are known when the save has ended.
func (s Save) String() string {
	text := s.Path
	if s.Step > 0 {
		text = fmt.Sprintf("step %d in %s", s.Step, s.Path)
	}
	if s.Ended.IsZero() {
		return text
	}
	return fmt.Sprintf("%s, %s, %s", text, size(s.Bytes), span(s.Ended.Sub(s.Began)))
}

// Text returns the saves in one line. It reports ages as of the time now.
func (s Saves) Text(now time.Time) string {
	text := "no save seen"
	if s.Last != nil {
		text = fmt.Sprintf("saved %v, %s ago", s.Last, span(now.Sub(s.Last.Ended)))
	}
	if s.InFlight != nil {
		text += "; saving " + s.InFlight.String()
	}
	if s.AtRisk > 0 {
		text += "; a stop loses " + s.Lost()
	}
	return text
}

// Stop says in words what a stopped job has saved, and reports whether it has saved anything:
// "saved step 1200 in /c/step-1200, 4.1 GiB, 37 s" or "no save seen: 41 min of work lost".
func (s *Saves) Stop() (text string, saved bool) {
	switch {
	case s == nil:
		return "no save seen", false
	case s.AfterNotice && s.Last != nil:
		return "saved " + s.Last.String(), true
	case s.Last != nil:
		return fmt.Sprintf("no save seen: %s lost; the last one is %v", s.Lost(), s.Last), false
	}
	return fmt.Sprintf("no save seen: %s lost", s.Lost()), false
}

// ending returns the checkpoint of a job that did not succeed, in words.
func (s Saves) ending() string {
	text := "no save was complete"
	if s.Last != nil {
		text = s.Last.String()
	}
	if s.AtRisk > 0 {
		text += "; " + s.Lost() + " lost"
	}
	return text
}

// Lost says in words how much work a stop loses.
func (s Saves) Lost() string {
	return span(time.Duration(s.AtRisk*float64(time.Second))) + " of work"
}

// size returns a number of bytes with a unit: "4.1 GiB".
func size(bytes int64) string {
	const units = "KMGTPE"
	if bytes < 1<<10 {
		return fmt.Sprintf("%d B", bytes)
	}
	i := min(int(math.Log2(float64(bytes))/10), len(units))
	return fmt.Sprintf("%.1f %ciB", float64(bytes)/math.Pow(1<<10, float64(i)), units[i-1])
}

// span returns a time with one unit: "37 s", "41 min", "3.2 h".
func span(d time.Duration) string {
	switch d = max(0, d); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.1f h", d.Hours())
}
