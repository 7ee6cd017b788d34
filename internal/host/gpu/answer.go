package gpu

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"syscall"

	"github.com/golaunch/golaunch/internal/host/helper"
)

// meterName is the argv[0] of a meter's child. The child ends when its standard input ends.
const meterName = "gpumeter"

// answer is a line that the child prints: one answer when it has opened the driver, then one for
// each line that it reads.
type answer struct {
	Readings []line
	// Why says why there is no device, and Err how the driver has failed. The child ends after
	// either.
	Why, Err string
}

// line is a reading as JSON, which has no NaN.
type line struct {
	Reading
	Use *float64
}

// init runs the child. The child must never reach main, which knows nothing of meters.
func init() {
	if !helper.Is(meterName) {
		return
	}
	questions := make(chan struct{}, 1)
	go listen(questions)
	out, lib := json.NewEncoder(os.Stdout), newLibrary()
	why, err := start(lib)
	for a := newAnswer(nil, why, err); out.Encode(a) == nil; a = newAnswer(measure(lib)) {
		<-questions
	}
	os.Exit(1)
}

// listen passes on one question at a time, and ends this process group at the end of the questions.
// It runs beside the driver's calls: if the parent was killed, a hanging driver must not keep the
// child from noticing that.
func listen(questions chan<- struct{}) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		questions <- struct{}{}
	}
	_ = syscall.Kill(-os.Getpid(), syscall.SIGKILL)
}

func newAnswer(readings []Reading, why string, err error) answer {
	a := answer{Why: why, Readings: make([]line, len(readings))}
	for i, r := range readings {
		a.Readings[i].Reading = r
		if !math.IsNaN(r.Use) {
			a.Readings[i].Use = &r.Use
		}
	}
	if err != nil {
		a.Err = err.Error()
	}
	return a
}

// parseAnswer reads a line. A driver failure in it is an error.
func parseAnswer(text []byte) (a answer, err error) {
	if err := json.Unmarshal(text, &a); err != nil {
		return answer{}, fmt.Errorf("GPU meter printed %.80q instead of its readings: %w", text, err)
	}
	if a.Err != "" {
		return answer{}, errors.New("NVIDIA driver: " + a.Err)
	}
	return a, nil
}

func (a answer) readings() []Reading {
	readings := make([]Reading, len(a.Readings))
	for i, l := range a.Readings {
		readings[i] = l.Reading
		if readings[i].Use = math.NaN(); l.Use != nil {
			readings[i].Use = *l.Use
		}
	}
	return readings
}
