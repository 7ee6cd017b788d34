package report

import (
	"bytes"
	"encoding/json"
	"time"
)

// Failure is the first failure of an attempt; the failures that follow are its echoes.
type Failure struct {
	// Node and Rank say where the failure was. Rank is -1 if no single rank failed, as with a lost
	// node.
	Node string
	Rank int
	// GPU is the rank's GPU; nil for a CPU rank.
	GPU     *GPU
	Attempt int
	// Exit is how the rank ended. At is when it ended, by the coordinator's clock, and Lived is how
	// long it ran. Step is the newest step that the rank reported, 0 if it reported none.
	Exit  Exit
	At    time.Time
	Lived time.Duration
	Step  int64
	// Further is how many other ranks of the attempt failed before they were told to stop.
	Further int
	// Why is the failure in words: "rank 3 on n1 (gpu 3) died of SIGKILL (out of memory)".
	Why string
	// Tail is the end of the rank's output, and Traceback the end of its exception's traceback.
	// Kernel has the messages of the node's kernel about the node's GPUs.
	Tail, Traceback, Kernel string
	// Hung says that the attempt failed because no rank made progress, and not because a rank
	// ended. Rank is then the rank that is behind the others, or -1.
	Hung bool
	// Verdict is what the failure means, as the coordinator decided by all the evidence and the job's
	// failure rules.
	Verdict Verdict
}

// GPU is one device of a node.
type GPU struct {
	// Index is the GPU's place in PCI bus order, from 0.
	Index int
	// UUID is the driver's name for the GPU, "GPU-..." or "MIG-..."; empty for a declared GPU.
	UUID string
	// HeldBy says who uses the GPU, such as "job a" or "pid 4411"; empty for a free GPU, and in a
	// Failure.
	HeldBy string
}

// failureJSON is a Failure in the form of docs/json.md, without fields that do not apply.
type failureJSON struct {
	Node      string   `json:"node"`
	Rank      *int     `json:"rank,omitempty"`
	GPU       *int     `json:"gpu,omitempty"`
	GPUUUID   string   `json:"gpu_uuid,omitempty"`
	Attempt   int      `json:"attempt"`
	Exit      *Exit    `json:"exit,omitempty"`
	At        string   `json:"at,omitempty"`
	Lived     float64  `json:"lived_seconds"`
	Step      int64    `json:"step,omitempty"`
	Further   int      `json:"further"`
	Why       string   `json:"why"`
	Tail      string   `json:"tail,omitempty"`
	Traceback string   `json:"traceback,omitempty"`
	Kernel    string   `json:"kernel,omitempty"`
	Hung      bool     `json:"hung"`
	Verdict   *Verdict `json:"verdict,omitempty"`
}

// MarshalJSON writes the failure as docs/json.md says.
func (f Failure) MarshalJSON() ([]byte, error) {
	j := failureJSON{
		Node: f.Node, Attempt: f.Attempt, At: timeText(f.At), Lived: f.Lived.Seconds(), Step: f.Step, Further: f.Further,
		Why: f.Why, Tail: f.Tail, Traceback: f.Traceback, Kernel: f.Kernel, Hung: f.Hung,
	}
	if f.Rank >= 0 {
		j.Rank = &f.Rank
	}
	if f.GPU != nil {
		j.GPU, j.GPUUUID = &f.GPU.Index, f.GPU.UUID
	}
	if f.Exit != (Exit{}) {
		j.Exit = &f.Exit
	}
	if f.Verdict != (Verdict{}) {
		j.Verdict = &f.Verdict
	}
	return marshal(j)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (f *Failure) UnmarshalJSON(text []byte) error {
	j := failureJSON{Rank: new(-1), Exit: new(Exit), Verdict: new(Verdict)}
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	*f = Failure{
		Node: j.Node, Rank: *j.Rank, Attempt: j.Attempt, Exit: *j.Exit, Lived: time.Duration(j.Lived * float64(time.Second)),
		Step: j.Step, Further: j.Further, Why: j.Why, Tail: j.Tail, Traceback: j.Traceback, Kernel: j.Kernel, Hung: j.Hung,
		Verdict: *j.Verdict,
	}
	if j.GPU != nil {
		f.GPU = &GPU{Index: *j.GPU, UUID: j.GPUUUID}
	}
	if j.At == "" {
		return nil
	}
	var err error
	f.At, err = time.Parse(time.RFC3339Nano, j.At)
	return err
}

// timeText returns a time in the form of docs/json.md: in UTC, with microseconds. It is empty for
// the zero time.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}

// marshal returns a value as JSON in which <, > and & are not escaped.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte{'\n'}), err
}
