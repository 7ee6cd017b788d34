package launcher

import (
	"encoding/json"
	"time"

	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// failure is a [Failure] as docs/json.md has it: what there is not is left out.
type failure struct {
	Node    string       `json:"node"`
	Rank    *int         `json:"rank,omitempty"`
	GPU     *int         `json:"gpu,omitempty"`
	GPUUUID string       `json:"gpu_uuid,omitempty"`
	Attempt int          `json:"attempt"`
	Exit    *report.Exit `json:"exit,omitempty"`
	At      time.Time    `json:"at"`
	// Lived is a number, so that encoding/json can read it.
	Lived     float64 `json:"lived_seconds"`
	Step      int64   `json:"step,omitempty"`
	Further   int     `json:"further"`
	Why       string  `json:"why"`
	Tail      string  `json:"tail,omitempty"`
	Traceback string  `json:"traceback,omitempty"`
	Kernel    string  `json:"kernel,omitempty"`
	Hung      bool    `json:"hung"`

	Verdict *Verdict `json:"verdict,omitempty"`
}

// MarshalJSON writes the failure as docs/json.md says.
func (f Failure) MarshalJSON() ([]byte, error) {
	j := failure{
		Node: f.Node, Attempt: f.Attempt, At: f.At, Lived: f.Lived.Seconds(), Step: f.Step, Further: f.Further, Why: f.Why, Tail: f.Tail,
		Traceback: f.Traceback, Kernel: f.Kernel, Hung: f.Hung,
	}
	if f.Rank >= 0 {
		j.Rank = &f.Rank
	}
	if f.GPU != nil {
		j.GPU, j.GPUUUID = &f.GPU.Index, f.GPU.UUID
	}
	if f.Exit != (report.Exit{}) {
		j.Exit = &f.Exit
	}
	if f.Verdict != (Verdict{}) {
		j.Verdict = &f.Verdict
	}
	return jsonout.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON has written.
func (f *Failure) UnmarshalJSON(text []byte) error {
	var j failure
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	*f = Failure{
		Node: j.Node, Rank: -1, Attempt: j.Attempt, At: j.At, Lived: time.Duration(j.Lived * float64(time.Second)), Step: j.Step,
		Further: j.Further, Why: j.Why, Tail: j.Tail, Traceback: j.Traceback, Kernel: j.Kernel, Hung: j.Hung,
	}
	if j.Rank != nil {
		f.Rank = *j.Rank
	}
	if j.GPU != nil {
		f.GPU = &placement.GPU{Index: *j.GPU, UUID: j.GPUUUID}
	}
	if j.Exit != nil {
		f.Exit = *j.Exit
	}
	if j.Verdict != nil {
		f.Verdict = *j.Verdict
	}
	return nil
}
