package listing

import (
	"math"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/units"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher/report"
)

// Straggler is a slow node, or slow ranks of a node; docs/json.md is its contract.
type Straggler struct {
	Node string `json:"node"`
	// Ranks are the slow ranks of the node. Whole is true if the whole node is slow.
	Ranks []int `json:"ranks"`
	Whole bool  `json:"whole_node"`
	// Slower is how much longer than the median the straggler takes, and Cost is the part of the
	// job's time that the straggler costs: 0.12 means 12 %.
	Slower float64   `json:"slower"`
	Cost   *float64  `json:"cost,omitempty"`
	Since  time.Time `json:"since"`
	// Text describes the straggler to people.
	Text string `json:"text"`
}

// newStragglers lists stragglers, the costliest first.
func newStragglers(s view.Slow, now time.Time) (all []Straggler) {
	for _, f := range s.Findings {
		all = append(all, Straggler{f.Node, f.Ranks, f.Whole, f.Slower, units.OrNil(f.Cost), f.Since, f.Sentence(now)})
	}
	return all
}

// Process is a rank and its activity; docs/json.md is its contract. Unknown fields are omitted.
type Process struct {
	Rank      int    `json:"rank"`
	LocalRank int    `json:"local_rank"`
	Node      string `json:"node"`
	PID       int    `json:"pid"`
	Attempt   int    `json:"attempt"`
	GPU       string `json:"gpu_uuid,omitempty"`
	Ended     string `json:"ended,omitempty"`
	Does      string `json:"does,omitempty"`

	CPUs           *float64       `json:"cpus,omitempty"`
	Memory         *float64       `json:"memory_bytes,omitempty"`
	IO             *float64       `json:"io_bytes_per_second,omitempty"`
	Processes      *float64       `json:"processes,omitempty"`
	Step           *float64       `json:"step,omitempty"`
	Total          *float64       `json:"steps_total,omitempty"`
	StepTime       *time.Duration `json:"step_seconds,omitempty"`
	BeatAge        *time.Duration `json:"heartbeat_age_seconds,omitempty"`
	SilenceAge     *time.Duration `json:"silence_seconds,omitempty"`
	Lines          *float64       `json:"log_lines,omitempty"`
	LogBytes       *float64       `json:"log_bytes,omitempty"`
	GPUUse         *float64       `json:"gpu_utilization,omitempty"`
	GPUMemory      *float64       `json:"gpu_memory_bytes,omitempty"`
	GPUMemoryTotal *float64       `json:"gpu_memory_total_bytes,omitempty"`
	GPUPower       *float64       `json:"gpu_power_watts,omitempty"`
	GPUTemperature *float64       `json:"gpu_temperature_celsius,omitempty"`
}

// newProcess describes a rank.
func newProcess(r *view.Rank) Process {
	u := r.Now
	return Process{
		Rank: r.Rank, LocalRank: r.LocalRank, Node: r.Node, PID: r.PID, Attempt: r.Attempt, GPU: r.GPU, Ended: r.Ended(), Does: r.Does,
		CPUs: units.OrNil(u.CPUs), Memory: units.OrNil(u.Memory), IO: units.OrNil(u.IO), Processes: units.OrNil(u.Processes), Step: units.OrNil(u.Step), Total: units.OrNil(u.Total),
		StepTime: seconds(u.StepTime), BeatAge: seconds(u.BeatAge), SilenceAge: seconds(u.SilenceAge), Lines: units.OrNil(u.Lines), LogBytes: units.OrNil(u.LogBytes),
		GPUUse: units.OrNil(u.GPUUse), GPUMemory: units.OrNil(u.GPUMemory), GPUMemoryTotal: units.OrNil(u.GPUMemoryTotal), GPUPower: units.OrNil(u.GPUPower),
		GPUTemperature: units.OrNil(u.GPUTemperature),
	}
}

// seconds converts a number of seconds; nil if unknown.
func seconds(v float64) *time.Duration {
	if units.OrNil(v) == nil {
		return nil
	}
	d := time.Duration(v * float64(time.Second))
	return &d
}

// Progress is the progress of a job; docs/json.md is its contract.
type Progress struct {
	progress report.Progress

	Step     float64        `json:"step"`
	Total    *float64       `json:"steps_total,omitempty"`
	StepTime *time.Duration `json:"step_seconds,omitempty"`
	Still    *time.Duration `json:"still_seconds,omitempty"`
	Done     *time.Time     `json:"done,omitempty"`
}

// newProgress returns the progress of ranks; nil if they report no steps.
func newProgress(ranks []*view.Rank, now time.Time) *Progress {
	p := view.ProgressOf(ranks, now)
	if math.IsNaN(p.Step) {
		return nil
	}
	s := &Progress{progress: p, Step: p.Step, Total: units.OrNil(p.Total), StepTime: seconds(p.StepTime)}
	if p.Still > 0 {
		s.Still = seconds(p.Still)
	}
	if !p.Done.IsZero() {
		s.Done = &p.Done
	}
	return s
}

func (p *Progress) String() string { return p.progress.String() }

// AddRanks adds the activity of a job's ranks, and names the slow ranks.
func (j *Job) AddRanks(ranks []*view.Rank, slow view.Slow, now time.Time) {
	j.Progress, j.Stragglers = newProgress(ranks, now), newStragglers(slow, now)
	for _, r := range ranks {
		j.Processes = append(j.Processes, newProcess(r))
	}
}
