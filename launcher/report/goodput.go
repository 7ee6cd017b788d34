package report

import (
	"fmt"
	"strings"
)

// Goodput says what the time of a job's ranks was spent on, in hours of one GPU, or of one rank of
// a job without GPUs. A rank's time counts while the rank has a place on a node, and while it waits
// for a node that replaces a lost one.
type Goodput struct {
	// Unit is "GPU" or "rank", and says whether the hours below are of one GPU or of one rank.
	Unit string `json:"unit"`
	// Goodput is Training as a share of Hours, 0 to 1. Hours is the sum of the fields from Training
	// on.
	Goodput float64 `json:"goodput"`
	Hours   float64 `json:"total_hours"`
	// Training does not include Lost. Lost is the time for the work that had to be done again after
	// a restart; golaunch knows it if the program reports its steps.
	Training float64 `json:"training_hours"`
	Lost     float64 `json:"lost_hours"`
	Starting float64 `json:"starting_hours"`
	Stopping float64 `json:"stopping_hours"`
	Backoff  float64 `json:"backoff_hours"`
	Waiting  float64 `json:"waiting_hours"`
	// Importing is the wait for a fork server that imports modules for the ranks.
	Importing float64 `json:"importing_hours"`
	// Interruptions counts the interruptions after which the job continued.
	Interruptions int `json:"interruptions"`
	// Costs are what the interruptions cost by cause and node, the highest first, 32 at most. One
	// more entry, with the cause [OtherCosts], has the sum of all others.
	Costs []Cost `json:"costs"`
}

// Cost is what the interruptions of one cause on one node cost.
type Cost struct {
	// Cause is the Cause of a [Verdict], or "node-lost", "unreachable", "drain" or [OtherCosts].
	Cause string `json:"cause"`
	// Node is the node to blame; empty for the echo of a failure elsewhere.
	Node          string `json:"node,omitempty"`
	Interruptions int    `json:"interruptions"`
	// Hours is the time from each interruption until all ranks trained again. It does not include
	// Lost.
	Hours float64 `json:"down_hours"`
	Lost  float64 `json:"lost_hours"`
}

const (
	// OtherCosts is the Cause of the entry for all costs that have no entry of their own.
	OtherCosts = "others"
	// OtherUsers is the User of the charges of all users who have no charges of their own.
	OtherUsers = "*"
)

// Total returns the hours that a cause has cost, lost hours included.
func (c Cost) Total() float64 { return c.Hours + c.Lost }

// Notable reports whether the goodput is worth a line: there was an interruption, or an hour was
// spent.
func (g *Goodput) Notable() bool { return g != nil && (g.Interruptions > 0 || g.Hours >= 1) }

// shownCosts bounds how many costs a line names.
const shownCosts = 4

// String returns the goodput in one line, such as "97.1 % of 512.0 GPU-hours; 3 interruptions cost
// 14.9: 9.1 gpu-lost (n17), 5.8 node-lost (n3)".
func (g Goodput) String() string {
	text := fmt.Sprintf("%.1f %% of %s %s-hours", 100*g.Goodput, amount(g.Hours), g.Unit)
	if g.Interruptions == 0 {
		return text
	}
	var parts []string
	sum := 0.0
	for i, c := range g.Costs {
		sum += c.Total()
		if i < shownCosts {
			parts = append(parts, c.String())
		}
	}
	if more := len(g.Costs) - shownCosts; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	noun := "interruptions"
	if g.Interruptions == 1 {
		noun = "interruption"
	}
	return fmt.Sprintf("%s; %d %s cost %s: %s", text, g.Interruptions, noun, amount(sum), strings.Join(parts, ", "))
}

// String returns the cost in a few words: "9.1 gpu-lost (n17)".
func (c Cost) String() string {
	text := amount(c.Total()) + " " + c.Cause
	if c.Node != "" {
		text += " (" + c.Node + ")"
	}
	return text
}

// amount rounds hours to the digits that matter.
func amount(hours float64) string {
	if hours < 1 {
		return fmt.Sprintf("%.3f", hours)
	}
	return fmt.Sprintf("%.1f", hours)
}
