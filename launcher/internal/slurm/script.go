package slurm

import (
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/launcher/internal/shellword"
	"github.com/golaunch/golaunch/launcher/internal/usage"
)

// Script is a batch script for sbatch that runs one command.
type Script struct {
	Name string
	// MinNodes and MaxNodes include spares. NoKill makes Slurm keep the job when it loses a node.
	MinNodes, MaxNodes int
	NoKill             bool
	// Ranks and GPUs are how many ranks and GPUs each node must have room for; 0 asks for nothing.
	Ranks int
	GPUs  int
	// Options are further options of sbatch. They follow the options that the other fields imply.
	Options []string
	Command []string
}

// Text returns the script. It fails if one of Options does not begin with a dash.
func (s Script) Text() (string, error) {
	nodes := strconv.Itoa(s.MinNodes)
	if s.MaxNodes > s.MinNodes {
		nodes += "-" + strconv.Itoa(s.MaxNodes)
	}
	lines := []string{"#!/bin/sh", "#SBATCH --job-name=" + shellword.Quote(s.Name), "#SBATCH --nodes=" + nodes}
	if s.Ranks > 0 { // at least one CPU for each rank
		lines = append(lines, "#SBATCH --ntasks-per-node="+strconv.Itoa(s.Ranks))
		if s.GPUs > 0 {
			lines = append(lines, "#SBATCH --gpus-per-node="+strconv.Itoa(s.GPUs))
		}
	}
	if s.NoKill {
		lines = append(lines, "#SBATCH --no-kill")
	}
	for _, o := range s.Options {
		if strings.ContainsAny(o, "\n\r") || !strings.HasPrefix(o, "-") {
			return "", usage.Errorf("sbatch option %q: one such as --partition=gpu", o)
		}
		lines = append(lines, "#SBATCH "+o)
	}
	words := make([]string, len(s.Command))
	for i, word := range s.Command {
		words[i] = shellword.Quote(word)
	}
	return strings.Join(append(lines, "exec "+strings.Join(words, " ")), "\n") + "\n", nil
}
