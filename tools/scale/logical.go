package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// logicalRows are the results of BenchmarkLogical of package rendezvous, by its metrics.
var logicalRows = []struct{ metric, name, unit string }{
	{"register-cpu-s", "register: coordinator's processor", "s"},
	{"register-B/agent", "memory per agent", "bytes"},
	{"start-cpu-s", "start: coordinator's processor", "s"},
	{"start-messages", "start: messages to agents", "messages"},
	{"start-B", "start: all of these", "bytes"},
	{"start-B/agent", "memory per agent, with a job", "bytes"},
	{"failure-cpu-s", "a rank fails to all started: coordinator's processor", "s"},
	{"failure-messages", "failure: messages to agents", "messages"},
	{"status-cpu-s", "status: coordinator's processor", "s"},
}

// logical measures the coordinator without connections.
func (p plan) logical(ctx context.Context, agents int) (*result, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "./rendezvous", "-run", "^$", "-bench", "^BenchmarkLogical$", "-benchtime", "1x", "-timeout", limit.String(),
		"-args", "-agents", strconv.Itoa(agents), "-ranks", strconv.Itoa(p.ranks))
	cmd.Dir = root(ctx)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot measure, run this in golaunch's repository: %w", err), errors.New(string(out)))
	}
	metrics := map[string]float64{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if !strings.HasPrefix(line, "BenchmarkLogical/") || len(fields) < 2 {
			continue
		}
		for i := 2; i+1 < len(fields); i += 2 {
			if metrics[fields[i+1]], err = strconv.ParseFloat(fields[i], 64); err != nil {
				return nil, fmt.Errorf("the benchmark says %q: %w", line, err)
			}
		}
	}
	r := &result{Agents: agents, Ranks: agents * p.ranks}
	for _, row := range logicalRows {
		v, said := metrics[row.metric]
		if !said {
			return r, fmt.Errorf("the benchmark does not say %s", row.metric)
		}
		r.add(row.name, v, row.unit, row.unit != "bytes" || row.metric == "start-B")
	}
	return r, nil
}
