package web

import (
	"encoding/json"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/alert"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher/report"
)

// detail is the page of a job.
type detail struct {
	summary
	Detached  bool     `json:"detached"`
	Submitter *uint32  `json:"submitter"`
	Names     []string `json:"names"`
	// Known counts the ranks that a node reports.
	Known int `json:"known"`
	// LogBytes is the number of bytes that its ranks have written in this attempt, if known.
	LogBytes real `json:"log_bytes"`
	// Slowest is how many times longer than the median the slowest rank takes, if known.
	Slowest real            `json:"slowest"`
	Result  *report.Result  `json:"result"`
	Ledger  *report.Goodput `json:"ledger"`
	Saves   *report.Saves   `json:"saves"`
}

// maxNames bounds the nodes of a job that the page names.
const maxNames = 64

// job adds the parts of a job's page, except its heat map. If no such job exists, there is no part
// "job".
func (p parts) job(of *alert.Picture, name string) {
	s, j := of.State, of.Job(name)
	if j == nil {
		return
	}
	p.add("job", detailOf(j, s.At))
	history := []report.Moment{}
	for _, m := range j.History {
		m.Cause, m.Node, m.Reason = text(m.Cause, maxName), text(m.Node, maxName), text(m.Reason, maxReason)
		history = append(history, m)
	}
	p.add("history", history)
	p.findings(j.Slow, s.At)
	p.ranks(j.Job.Ranks, s.At)
	p.alerts(j.Job.Ranks, of)
}

// finding is a straggler.
type finding struct {
	Text  string `json:"text"`
	Ranks []int  `json:"ranks"`
	Node  string `json:"node"`
}

// findings adds the stragglers.
func (p parts) findings(s view.Slow, now time.Time) {
	found := []finding{}
	for _, f := range s.Findings {
		found = append(found, finding{text(f.Sentence(now), maxReason), append([]int{}, f.Ranks...), text(f.Node, maxName)})
	}
	p.add("findings", found)
}

func detailOf(j *alert.Job, now time.Time) detail {
	d := detail{summary: summaryOf(j, now), Detached: j.Detached, Submitter: j.Submitter, Known: len(j.Ranks), Slowest: real(j.Slow.Ratio), Ledger: shownGoodput(j.JobStatus.Goodput), Saves: shownSaves(j.Saves)}
	for _, name := range j.JobStatus.Nodes[:min(len(j.JobStatus.Nodes), maxNames)] {
		d.Names = append(d.Names, text(name, maxName))
	}
	for _, r := range j.Ranks {
		if !math.IsNaN(r.Now.LogBytes) {
			d.LogBytes += real(r.Now.LogBytes)
		}
	}
	if r := j.Result; r != nil {
		d.Result = &report.Result{
			Code: r.Code, Ending: r.Ending, Reason: text(r.Reason, maxReason), Cause: shownFailure(r.Cause), Attempts: r.Attempts, Restarts: r.Restarts,
		}
	}
	return d
}

// shownFailure is a failure whose texts are safe and short.
func shownFailure(f *report.Failure) *report.Failure {
	if f == nil {
		return nil
	}
	s, v := *f, f.Verdict
	s.Why, s.Node, s.Exit.Spawn = text(f.Why, maxReason), text(f.Node, maxName), text(f.Exit.Spawn, maxReason)
	s.Tail, s.Traceback, s.Kernel = paragraph(f.Tail, maxTail), paragraph(f.Traceback, maxTail), paragraph(f.Kernel, maxTail)
	v.Cause, v.Title, v.Quote = text(v.Cause, maxName), text(v.Title, maxReason), text(v.Quote, maxReason)
	v.Action, v.From, v.Remedy = report.Action(text(string(v.Action), maxName)), report.Source(text(string(v.From), maxName)), text(v.Remedy, maxReason)
	if s.Verdict = v; f.GPU != nil {
		gpu := *f.GPU
		gpu.UUID = text(gpu.UUID, maxName)
		s.GPU = &gpu
	}
	return &s
}

// shownSaves are checkpoints whose texts are safe and short.
func shownSaves(s *report.Saves) *report.Saves {
	if s == nil {
		return nil
	}
	all := *s
	all.Last, all.InFlight = shownSave(s.Last), shownSave(s.InFlight)
	return writable(&all)
}

func shownSave(s *report.Save) *report.Save {
	if s == nil {
		return nil
	}
	save := *s
	save.Path, save.Format = text(s.Path, maxReason), text(s.Format, maxName)
	return &save
}

// shownGoodput is a goodput whose texts are safe and short.
func shownGoodput(g *report.Goodput) *report.Goodput {
	if g == nil {
		return nil
	}
	all := *g
	all.Unit, all.Costs = text(g.Unit, maxName), []report.Cost{}
	for _, c := range g.Costs {
		c.Cause, c.Node = text(c.Cause, maxName), text(c.Node, maxName)
		all.Costs = append(all.Costs, c)
	}
	return writable(&all)
}

// writable returns v, or nil if v has a number or a time that JSON cannot hold, from a broken
// coordinator.
func writable[T any](v *T) *T {
	if _, err := json.Marshal(v); err != nil {
		return nil
	}
	return v
}

// alerts adds the alerts of ranks, and their order: the worst is first.
func (p parts) alerts(all []*view.Rank, of *alert.Picture) {
	type rank struct {
		job  string
		rank int
	}
	found := map[rank]alert.Alert{}
	for _, r := range all {
		found[rank{r.Job, r.Rank}] = alert.Alert{}
	}
	var worst []alert.Alert
	for _, j := range of.Jobs {
		for _, r := range j.Ranks {
			key := rank{r.Job, r.Rank.Rank}
			if _, shown := found[key]; shown && r.Level > alert.Fine {
				found[key], worst = r.Alert, append(worst, r.Alert)
			}
		}
	}
	slices.SortFunc(worst, alert.Worse)
	each := func(of func(alert.Alert) string) iter.Seq[string] {
		return values(all, func(r *view.Rank) string { return of(found[rank{r.Job, r.Rank}]) })
	}
	p.texts("r.level", each(func(c alert.Alert) string { return c.Level.String() }))
	p.texts("r.why", each(func(c alert.Alert) string { return c.Why }))
	p.numbers("r.place", whole, values(all, func(r *view.Rank) float64 {
		place, _ := slices.BinarySearchFunc(worst, found[rank{r.Job, r.Rank}], alert.Worse)
		return float64(place)
	}))
}

// ranks adds a table of ranks.
func (p parts) ranks(all []*view.Rank, now time.Time) {
	num := func(name string, digits int, value func(*view.Rank) float64) {
		p.numbers("r."+name, digits, values(all, value))
	}
	num("rank", whole, func(r *view.Rank) float64 { return float64(r.Rank) })
	num("local", whole, func(r *view.Rank) float64 { return float64(r.LocalRank) })
	num("pid", whole, func(r *view.Rank) float64 { return float64(r.PID) })
	num("attempt", whole, func(r *view.Rank) float64 { return float64(r.Attempt) })
	p.texts("r.job", values(all, func(r *view.Rank) string { return r.Job }))
	p.texts("r.node", values(all, func(r *view.Rank) string { return r.Node }))
	p.texts("r.ended", values(all, (*view.Rank).Ended))
	p.texts("r.does", values(all, func(r *view.Rank) string { return r.Does }))
	num("step", whole, func(r *view.Rank) float64 { return r.Now.Step })
	num("step_time", 4, func(r *view.Rank) float64 { return r.Now.StepTime })
	num("beat", 2, func(r *view.Rank) float64 { return r.Now.BeatAge })
	num("silence", 2, func(r *view.Rank) float64 {
		if r.Now.LogBytes == 0 {
			return math.NaN() // otherwise SilenceAge is the age of the rank
		}
		return r.Now.SilenceAge
	})
	num("gpu_use", 3, func(r *view.Rank) float64 { return r.Now.GPUUse })
	num("gpu_memory", 3, func(r *view.Rank) float64 { return r.Now.GPUMemory })
	num("gpu_memory_total", 3, func(r *view.Rank) float64 { return r.Now.GPUMemoryTotal })
	num("power", 3, func(r *view.Rank) float64 { return r.Now.GPUPower })
	num("temperature", whole, func(r *view.Rank) float64 { return r.Now.GPUTemperature })
	num("xids", whole, func(r *view.Rank) float64 { return r.Now.Xids })
	num("cpus", 3, func(r *view.Rank) float64 { return r.Now.CPUs })
	num("memory", 3, func(r *view.Rank) float64 { return r.Now.Memory })
	num("io", 3, func(r *view.Rank) float64 { return r.Now.IO })
	num("heard", whole, func(r *view.Rank) float64 { return ago(now, r.Heard) })
}
