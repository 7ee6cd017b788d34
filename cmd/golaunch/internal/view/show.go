package view

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/golaunch/golaunch/launcher"
)

const (
	// lookBack is how much of the past tells who is slow, where samples are few, and maxLookBack bounds the ranks that are asked for it: of
	// so many it is some 10 MB.
	lookBack    = 10 * time.Minute
	maxLookBack = 1024
)

// Ranks asks once what the ranks of a job do, and waits for its nodes within a limit.
func Ranks(ctx context.Context, s Source, job string, within time.Duration) ([]*Rank, error) {
	return ask(ctx, s, launcher.SampleQuery{Job: job, Within: within})
}

// Look asks once what the ranks of a job do, and who was slow of late. Of a job with very many ranks that is not known: the samples of all
// of them are asked only by who watches, as golaunch top does.
func Look(ctx context.Context, s Source, job launcher.JobStatus, within time.Duration) ([]*Rank, Slow, error) {
	if job.Ranks > maxLookBack || job.Phase != "running" {
		ranks, err := Ranks(ctx, s, job.ID, within)
		return ranks, Slow{Ratio: math.NaN()}, err
	}
	ranks, err := ask(ctx, s, launcher.SampleQuery{Job: job.ID, Since: lookBack, Within: within})
	if err != nil {
		return nil, Slow{}, err
	}
	return ranks, Past(job.Ranks, ranks, time.Now()), nil
}

func ask(ctx context.Context, s Source, q launcher.SampleQuery) ([]*Rank, error) {
	p := newPortion()
	for n, err := range s.Samples(ctx, q) {
		if err != nil {
			return nil, err
		}
		p.take(n, q.Since)
	}
	var all []*Rank
	for _, r := range p.ranks {
		all = append(all, r)
	}
	slices.SortFunc(all, byRank)
	return all, nil
}

// SlowShown is who is slow, in JSON; docs/json.md is its contract.
type SlowShown struct {
	Node string `json:"node"`
	// Ranks are those of the node that are slow, and Whole says that it is the node rather than they.
	Ranks []int `json:"ranks"`
	Whole bool  `json:"whole_node"`
	// Slower is by how much longer than the median it takes, and Cost what part of its time the job would save without it: 0.12 is 12 %.
	Slower float64   `json:"slower"`
	Cost   *float64  `json:"cost,omitempty"`
	Since  time.Time `json:"since"`
	// Text says it to people.
	Text string `json:"text"`
}

// ShowSlow is who is slow, the dearest first.
func ShowSlow(s Slow, now time.Time) (all []SlowShown) {
	for _, f := range s.Findings {
		all = append(all, SlowShown{f.Node, f.Ranks, f.Whole, f.Slower, known(f.Cost), f.Since, f.Sentence(now)})
	}
	return all
}

// RankShown is a rank in JSON; docs/json.md is its contract. What is not known is left out.
type RankShown struct {
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

// Show is a rank in JSON.
func Show(r *Rank) RankShown {
	u := r.Now
	return RankShown{
		Rank: r.Rank, LocalRank: r.LocalRank, Node: r.Node, PID: r.PID, Attempt: r.Attempt, GPU: r.GPU, Ended: r.Ended, Does: r.Does,
		CPUs: known(u.CPUs), Memory: known(u.Memory), IO: known(u.IO), Processes: known(u.Processes), Step: known(u.Step), Total: known(u.Total),
		StepTime: seconds(u.StepTime), BeatAge: seconds(u.BeatAge), SilenceAge: seconds(u.SilenceAge), Lines: known(u.Lines), LogBytes: known(u.LogBytes),
		GPUUse: known(u.GPUUse), GPUMemory: known(u.GPUMemory), GPUMemoryTotal: known(u.GPUMemoryTotal), GPUPower: known(u.GPUPower),
		GPUTemperature: known(u.GPUTemperature),
	}
}

func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// seconds is a number of them, as a time.
func seconds(v float64) *time.Duration {
	if known(v) == nil {
		return nil
	}
	d := time.Duration(v * float64(time.Second))
	return &d
}

// ProgressShown is how far a job has come, in JSON; docs/json.md is its contract.
type ProgressShown struct {
	Progress `json:"-"`

	Step     float64        `json:"step"`
	Total    *float64       `json:"steps_total,omitempty"`
	StepTime *time.Duration `json:"step_seconds,omitempty"`
	Still    *time.Duration `json:"still_seconds,omitempty"`
	Done     *time.Time     `json:"done,omitempty"`
}

// ShowProgress is how far ranks have come; nil if none tells.
func ShowProgress(ranks []*Rank, now time.Time) *ProgressShown {
	p := progress(ranks, now)
	if math.IsNaN(p.Step) {
		return nil
	}
	s := &ProgressShown{Progress: p, Step: p.Step, Total: known(p.Total), StepTime: seconds(p.StepTime)}
	if p.Still > 0 {
		s.Still = seconds(p.Still)
	}
	if !p.Done.IsZero() {
		s.Done = &p.Done
	}
	return s
}
