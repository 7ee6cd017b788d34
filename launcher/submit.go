package launcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/placement"
)

// SlurmScript is a batch script for sbatch that runs argv, a golaunch command line, on the nodes and GPUs that the job wants. Options
// are sbatch's own and come after those that follow from the job.
func SlurmScript(j Job, argv, options []string) (string, error) {
	j.Network.Scheduler = noScheduler // a job may be submitted from within another
	j, err := j.complete()
	if err != nil {
		return "", err
	}
	nodes := strconv.Itoa(j.Resources.MinNodes + j.Resources.Spares)
	if j.Resources.MaxNodes > j.Resources.MinNodes {
		nodes += "-" + strconv.Itoa(j.Resources.MaxNodes+j.Resources.Spares)
	}
	lines := []string{"#!/bin/sh", "#SBATCH --job-name=" + quote(filepath.Base(j.Command[0])), "#SBATCH --nodes=" + nodes}
	ranks := j.Resources.PerNode[0]
	for _, n := range j.Resources.PerNode {
		ranks = max(ranks, n)
	}
	if ranks != placement.AllGPUs { // at least one CPU for each
		lines = append(lines, "#SBATCH --ntasks-per-node="+strconv.Itoa(ranks))
		if j.Resources.GPU {
			lines = append(lines, "#SBATCH --gpus-per-node="+strconv.Itoa(ranks))
		}
	}
	if j.Resources.Spares > 0 {
		lines = append(lines, "#SBATCH --no-kill")
	}
	for _, o := range options {
		if strings.ContainsAny(o, "\n\r") || !strings.HasPrefix(o, "-") {
			return "", usage("sbatch option %q: one such as --partition=gpu", o)
		}
		lines = append(lines, "#SBATCH "+o)
	}
	words := make([]string, len(argv))
	for i, word := range argv {
		words[i] = quote(word)
	}
	return strings.Join(append(lines, "exec "+strings.Join(words, " ")), "\n") + "\n", nil
}

// quote makes one word of a text, for a shell and for sbatch.
func quote(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%+=:,./_-", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// SubmitToSlurm gives a batch script to sbatch and returns the id of the job.
func SubmitToSlurm(ctx context.Context, script string) (string, error) {
	cmd := exec.CommandContext(ctx, "sbatch", "--parsable")
	var complaint bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(script), &complaint
	out, err := cmd.Output()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", errors.New("there is no sbatch here: submit from a machine of a Slurm cluster, or print the script with --dry-run")
	case err != nil:
		return "", fmt.Errorf("sbatch refused the job: %s (%w)", strings.TrimSpace(complaint.String()), err)
	}
	id, _, _ := strings.Cut(strings.TrimSpace(string(out)), ";") // behind it the cluster's name
	return id, nil
}
