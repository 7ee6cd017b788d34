package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/golaunch/golaunch/launcher/internal/shellword"
)

// Slurm asks for nodes as batch jobs of one node each. The jobs' names are the tags. Options are
// options of sbatch(1).
type Slurm struct {
	Options []string
	Agent   Agent
}

// Create implements rendezvous.Provider. If Slurm refuses a job, Create does not submit the jobs
// after it.
func (p Slurm) Create(ctx context.Context, tags []string) error {
	for _, tag := range tags {
		line := p.Line(tag)
		if _, err := run(ctx, []byte(p.script(tag)), line[0], line[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// Line implements Provider.
func (p Slurm) Line(tag string) []string {
	return append([]string{"sbatch", "--parsable", "--job-name=" + tag, "--nodes=1", "--no-requeue", "--open-mode=append"}, p.Options...)
}

// script returns the batch script that runs the agent. The job ends with the agent. The agent's
// messages are in the job's output.
func (p Slurm) script(tag string) string {
	words := p.Agent.command(tag)
	for i, w := range words {
		words[i] = shellword.Quote(w)
	}
	return "#!/bin/sh\nexec " + strings.Join(words, " ") + "\n"
}

// jobs returns the user's jobs, or the jobs with the given names.
func (p Slurm) jobs(ctx context.Context, names ...string) (all []slurmJob, err error) {
	// The name is the last field, since it may contain the separator.
	args := []string{"--me", "--noheader", "--format=%i|%T|%r|%j"}
	if len(names) > 0 {
		args = append(args, "--name="+strings.Join(names, ","))
	}
	out, err := run(ctx, nil, "squeue", args...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(out)) {
		f := strings.SplitN(strings.TrimSpace(line), "|", 4)
		if len(f) != 4 {
			return nil, errNonsense("squeue", []byte(line), errors.New("want 4 fields"))
		}
		all = append(all, slurmJob{f[0], strings.ToLower(f[1]), f[2], f[3]})
	}
	return all, nil
}

// slurmJob is a job in the output of squeue(1).
type slurmJob struct{ id, state, reason, name string }

// List implements rendezvous.Provider.
func (p Slurm) List(ctx context.Context) (map[string]string, error) {
	jobs, err := p.jobs(ctx)
	if err != nil {
		return nil, err
	}
	states := map[string]string{}
	for _, j := range jobs {
		state := fmt.Sprintf("Slurm job %s, %s", j.id, j.state)
		if j.reason != "None" && j.reason != "" {
			state += ": " + j.reason
		}
		states[j.name] = state
	}
	return states, nil
}

// Delete implements rendezvous.Provider. It cancels jobs by their IDs, since scancel takes only one
// name.
func (p Slurm) Delete(ctx context.Context, tags []string) error {
	jobs, err := p.jobs(ctx, tags...)
	if err != nil || len(jobs) == 0 {
		return err
	}
	args := []string{"--quiet"} // then scancel does not fail for a job that has just ended
	for _, j := range jobs {
		args = append(args, j.id)
	}
	_, err = run(ctx, nil, "scancel", args...)
	return err
}
