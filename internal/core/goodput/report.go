package goodput

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Report is a ledger in hours of one GPU, or of one rank of a job without GPUs. A rank counts for as long as its unit is placed or
// waits for a node in the place of a lost one.
type Report struct {
	// Unit is what the hours are of: "GPU" or "rank".
	Unit string `json:"unit"`
	// Goodput is Training as a share of Hours, 0 to 1, and Hours the sum of all that follow.
	Goodput float64 `json:"goodput"`
	Hours   float64 `json:"total_hours"`
	// Training is without Lost, which was trained again after a restart, as far as the program's steps are known.
	Training float64 `json:"training_hours"`
	Lost     float64 `json:"lost_hours"`
	Starting float64 `json:"starting_hours"`
	Stopping float64 `json:"stopping_hours"`
	Backoff  float64 `json:"backoff_hours"`
	Waiting  float64 `json:"waiting_hours"`
	// Importing is for modules that a fork server imports for the ranks.
	Importing float64 `json:"importing_hours"`
	// Interruptions counts those after which the job went on.
	Interruptions int `json:"interruptions"`
	// Costs are what these cost by cause and node, dearest first, those that are not kept by name last.
	Costs []Cost `json:"costs"`
}

// Cost is what the interruptions of one cause and node have cost: Hours until all ranks trained again, without those that were Lost.
type Cost struct {
	// Cause is a verdict's, or "node-lost", "unreachable", "drain", and Others for what is not kept by name.
	Cause string `json:"cause"`
	// Node is the one that is to blame; empty for an echo of what happened elsewhere.
	Node          string  `json:"node,omitempty"`
	Interruptions int     `json:"interruptions"`
	Hours         float64 `json:"down_hours"`
	Lost          float64 `json:"lost_hours"`
}

// Others is the cause of what is not kept by name.
const Others = "others"

// all is what a cost comes to.
func (c Cost) all() float64 { return c.Hours + c.Lost }

// Report is the ledger at a time, with the hours of a unit. It costs O(units); nil says that the job has had no time yet.
func (l *Ledger) Report(at time.Time, unit string) *Report {
	now := max(l.now, at.UnixMilli())
	used, open := l.used, map[*account]int64{}
	for _, u := range l.units {
		used[u.use] += u.until(now)
		if u.blame != nil {
			open[u.blame] += u.until(now)
		}
	}
	r := &Report{
		Unit: unit, Training: hours(used[Training] - l.lost), Lost: hours(l.lost), Starting: hours(used[Starting]),
		Stopping: hours(used[Stopping]), Backoff: hours(used[Backoff]), Waiting: hours(used[Waiting]), Importing: hours(used[Importing]),
	}
	whole := int64(0)
	for _, spent := range used {
		whole += spent
	}
	if whole == 0 {
		return nil
	}
	r.Hours, r.Goodput = hours(whole), float64(used[Training]-l.lost)/float64(whole)
	for _, a := range l.accounts {
		r.Costs = append(r.Costs, a.read(open[a]))
	}
	slices.SortStableFunc(r.Costs, func(a, b Cost) int { return cmp.Compare(b.all(), a.all()) })
	if l.others.times > 0 {
		r.Costs = append(r.Costs, l.others.read(open[&l.others]))
	}
	for _, c := range r.Costs {
		r.Interruptions += c.Interruptions
	}
	return r
}

// Notable says that a report is worth a line: something was interrupted, or an hour was spent.
func (r *Report) Notable() bool { return r != nil && (r.Interruptions > 0 || r.Hours >= 1) }

func (a *account) read(open int64) Cost {
	return Cost{Cause: cmp.Or(a.cause, Others), Node: a.node, Interruptions: a.times, Hours: hours(a.cost + open), Lost: hours(a.lost)}
}

func hours(ms int64) float64 { return float64(ms) / float64(time.Hour.Milliseconds()) }

// shownCosts bounds how many costs a line names.
const shownCosts = 4

// String is the report in one line, such as "97.1 % of 512.0 GPU-hours; 3 interruptions cost 14.9: 9.1 gpu-lost (n17), 5.8 node-lost
// (n3)".
func (r Report) String() string {
	text := fmt.Sprintf("%.1f %% of %s %s-hours", 100*r.Goodput, amount(r.Hours), r.Unit)
	if r.Interruptions == 0 {
		return text
	}
	var parts []string
	sum := 0.0
	for i, c := range r.Costs {
		sum += c.all()
		if i < shownCosts {
			parts = append(parts, c.String())
		}
	}
	if more := len(r.Costs) - shownCosts; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	noun := "interruptions"
	if r.Interruptions == 1 {
		noun = "interruption"
	}
	return fmt.Sprintf("%s; %d %s cost %s: %s", text, r.Interruptions, noun, amount(sum), strings.Join(parts, ", "))
}

func (c Cost) String() string {
	text := amount(c.all()) + " " + c.Cause
	if c.Node != "" {
		text += " (" + c.Node + ")"
	}
	return text
}

// amount has as many digits as say something.
func amount(hours float64) string {
	if hours < 1 {
		return fmt.Sprintf("%.3f", hours)
	}
	return fmt.Sprintf("%.1f", hours)
}
