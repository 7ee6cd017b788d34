package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/golaunch/golaunch/launcher/internal/shellword"
)

// Slurm asks for nodes as batch jobs of one node each, whose names are the tags. Options are those
// of sbatch(1).
type Slurm struct {
	Options []string
	Agent   Agent
}

// Create implements rendezvous.Provider. If one job is refused, the others are not submitted.
func (p Slurm) Create(ctx context.Context, tags []string) error {
	for _, tag := range tags {
		args := append([]string{"--parsable", "--job-name=" + tag, "--nodes=1", "--no-requeue", "--open-mode=append"}, p.Options...)
		if _, err := run(ctx, []byte(p.script(tag)), "sbatch", args...); err != nil {
			return err
		}
	}
	return nil
}

// script runs the agent, which ends with the job. Its words are in the job's output.
func (p Slurm) script(tag string) string {
	words := p.Agent.command(tag)
	for i, w := range words {
		words[i] = shellword.Quote(w)
	}
	return "#!/bin/sh\nexec " + strings.Join(words, " ") + "\n"
}

// listFormat is the fields of squeue that are read: name, ID, state, reason.
const listFormat = "%j|%i|%T|%r"

// List implements rendezvous.Provider.
func (p Slurm) List(ctx context.Context) (map[string]string, error) {
	out, err := run(ctx, nil, "squeue", "--me", "--noheader", "--format="+listFormat)
	if err != nil {
		return nil, err
	}
	states := map[string]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 4 {
			return nil, errNonsense("squeue", []byte(line), errors.New("want 4 fields"))
		}
		state := strings.ToLower(f[2])
		if f[3] != "None" && f[3] != "" {
			state += ": " + f[3]
		}
		states[f[0]] = fmt.Sprintf("Slurm job %s, %s", f[1], state)
	}
	return states, nil
}

// Delete implements rendezvous.Provider. scancel says nothing of jobs that are not there.
func (p Slurm) Delete(ctx context.Context, tags []string) error {
	_, err := run(ctx, nil, "scancel", "--me", "--name="+strings.Join(tags, ","))
	return err
}
