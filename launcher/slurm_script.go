package launcher

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/placement"
)

// SlurmScript is a batch script for sbatch that runs argv, a golaunch command line, on the nodes and GPUs that the job wants. Options
// are sbatch's own and come after those that follow from the job.
func (j Job) SlurmScript(argv, options []string) (string, error) {
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
