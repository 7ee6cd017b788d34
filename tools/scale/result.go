package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// result has the measurements at one size. Times are in seconds, and sizes in bytes. Values that
// were not measured are absent.
type result struct {
	Agents int     `json:"agents"`
	Ranks  int     `json:"ranks"`
	Rows   []value `json:"values"`
}

// value is one measured value. PerAgent says that it should grow with the number of agents, so that
// its cost per agent matters.
type value struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Linear bool    `json:"linear,omitempty"`
}

func (r *result) add(name string, v float64, unit string, linear bool) {
	r.Rows = append(r.Rows, value{name, v, unit, linear})
}

// print prints a column for each size. The last column shows how the cost of an agent has changed
// from the smallest size to the largest.
func print(w io.Writer, all []*result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := []string{"agents"}
	for _, r := range all {
		head = append(head, fmt.Sprint(r.Agents))
	}
	fmt.Fprintln(t, strings.Join(head, "\t")+"\tof linear\t")
	first, last := all[0], all[len(all)-1]
	rows := slices.MaxFunc(all, func(a, b *result) int { return len(a.Rows) - len(b.Rows) }).Rows
	for i, row := range rows {
		line := []string{row.Name}
		for _, r := range all {
			if i < len(r.Rows) {
				line = append(line, r.Rows[i].text())
			} else {
				line = append(line, "failed")
			}
		}
		growth := ""
		if row.Linear && len(all) > 1 && i < len(last.Rows) && i < len(first.Rows) && first.Rows[i].Value > 0 {
			growth = fmt.Sprintf("%.2f", last.Rows[i].Value/first.Rows[i].Value*float64(first.Agents)/float64(last.Agents))
		}
		fmt.Fprintln(t, strings.Join(append(line, growth), "\t")+"\t")
	}
	return t.Flush()
}

func (v value) text() string {
	switch v.Unit {
	case "s":
		return fmt.Sprintf("%.3f s", v.Value)
	case "bytes":
		return fmt.Sprintf("%.1f kB", v.Value/1000)
	case "messages":
		return fmt.Sprintf("%.0f", v.Value)
	}
	return fmt.Sprintf("%.2f %s", v.Value, v.Unit)
}
