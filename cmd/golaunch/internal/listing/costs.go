package listing

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher/report"
)

// cost --json prints these; docs/json.md is their contract.
type (
	Costs struct {
		jsonout.Header
		// Since is when the first node joined.
		Since time.Time `json:"since,omitzero"`
		Users []Cost    `json:"users"`
		Idle  []Cost    `json:"idle"`
		Jobs  []Cost    `json:"jobs"`
	}
	// Cost is the use of one kind of nodes by the jobs of a user or by one job, or the idle time of
	// that kind.
	Cost struct {
		Job       string  `json:"job,omitempty"`
		User      string  `json:"user,omitempty"`
		Kind      string  `json:"kind,omitempty"`
		NodeHours float64 `json:"node_hours"`
		GPUHours  float64 `json:"gpu_hours"`
		// Price is the price of a node for an hour. Price and Cost are nil if the kind has no
		// price.
		Price *float64 `json:"price,omitempty"`
		Cost  *float64 `json:"cost,omitempty"`
	}
)

// NewCosts returns the costs of the nodes of a cluster. It omits jobs that were charged for
// nothing.
func NewCosts(s report.Status) *Costs {
	c := &Costs{Since: s.Counted}
	for _, x := range s.Charges {
		if x.Idle {
			c.Idle = append(c.Idle, newCost("", x))
		} else {
			c.Users = append(c.Users, newCost("", x))
		}
	}
	for _, j := range s.Jobs {
		for _, x := range j.Charges {
			x.User = j.User
			c.Jobs = append(c.Jobs, newCost(j.ID, x))
		}
	}
	return c
}

func newCost(job string, x report.Charge) Cost {
	c := Cost{Job: job, User: x.User, Kind: x.Kind, NodeHours: x.NodeHours, GPUHours: x.GPUHours}
	if x.Price > 0 {
		c.Price, c.Cost = new(x.Price), new(x.Price*x.NodeHours)
	}
	return c
}

// Write writes tables of users and of jobs, and the prices.
func (c *Costs) Write(w io.Writer) error {
	if c.Since.IsZero() {
		_, err := fmt.Fprintln(w, "no node has joined a cluster yet")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "USER\tKIND\tNODE-HOURS\tGPU-HOURS\tCOST")
	for _, u := range c.Users {
		fmt.Fprintf(t, "%s\t%s\n", UserName(u.User), u.columns())
	}
	for _, idle := range c.Idle {
		fmt.Fprintf(t, "(idle)\t%s\n", idle.columns())
	}
	if len(c.Jobs) > 0 {
		fmt.Fprintln(t, "\nJOB\tUSER\tKIND\tNODE-HOURS\tGPU-HOURS\tCOST")
	}
	for _, j := range c.Jobs {
		fmt.Fprintf(t, "%s\t%s\t%s\n", j.Job, UserName(j.User), j.columns())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	text := "\nsince " + c.Since.Local().Format("2006-01-02 15:04")
	var prices []string
	for _, k := range c.Idle { // each kind of nodes is in Idle once
		if k.Price != nil {
			prices = append(prices, fmt.Sprintf("%s for an hour of %s", strconv.FormatFloat(*k.Price, 'f', -1, 64), k.Kind))
		}
	}
	if len(prices) > 0 {
		text += ", at " + strings.Join(prices, ", ")
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// columns are the cells that users, jobs and idle nodes have in common.
func (c Cost) columns() string {
	cost := "-"
	if c.Cost != nil {
		cost = strconv.FormatFloat(*c.Cost, 'f', 2, 64)
	}
	kind := c.Kind
	if kind == "" {
		kind = "-"
	}
	return fmt.Sprintf("%s\t%.2f\t%.2f\t%s", kind, c.NodeHours, c.GPUHours, cost)
}

// UserName returns the name of a charge's user for tables.
func UserName(user string) string {
	switch user {
	case "":
		return "(unknown)"
	case report.OtherUsers:
		return "(others)"
	}
	return user
}
