// Package sbatch submits a golaunch command to Slurm as a batch job.
package sbatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
)

// Flags are the flags that submit a job to Slurm.
type Flags struct {
	Slurm, dry bool
	options    []string
}

func (s *Flags) Declare(f *pflag.FlagSet) {
	f.BoolVar(&s.Slurm, "slurm-submit", false, "submit the job to Slurm as a batch job, and print its id")
	f.StringArrayVar(&s.options, "sbatch", nil, "with --slurm-submit: an `option` for sbatch, such as --sbatch=--partition=gpu; repeat it for more")
	f.BoolVar(&s.dry, "dry-run", false, "with --slurm-submit: print the batch script instead")
}

// Submit submits a batch script that runs the same command without these flags.
func (s *Flags) Submit(io *cli.Console, f *pflag.FlagSet, j launcher.Job) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	script, err := j.SlurmScript(append(s.rest([]string{self}, f), j.Command...), s.options)
	if err != nil {
		return err
	}
	text := script
	if !s.dry {
		id, err := sbatch(context.Background(), script)
		switch {
		case err != nil:
			return err
		case io.JSON:
			return jsonout.Print(io.Stdout, &jsonout.Submitted{Job: id})
		}
		text = id + "\n"
	}
	_, err = fmt.Fprint(io.Stdout, text)
	return err
}

// rest appends to argv the other flags that were given.
func (s *Flags) rest(argv []string, f *pflag.FlagSet) []string {
	f.Visit(func(flag *pflag.Flag) {
		switch flag.Name {
		case "slurm-submit", "sbatch", "dry-run":
			return
		}
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			argv = append(argv, "--"+flag.Name+"="+v)
		}
	})
	return append(argv, "--")
}

// Check refuses flags that would have no effect.
func (s *Flags) Check() error {
	var odd []string
	if s.dry {
		odd = append(odd, "--dry-run (see golaunch plan)")
	}
	if len(s.options) > 0 {
		odd = append(odd, "--sbatch")
	}
	if s.Slurm || len(odd) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s: only with --slurm-submit", launcher.ErrUsage, strings.Join(odd, ", "))
}

// sbatch submits a script and returns the job's id.
func sbatch(ctx context.Context, script string) (string, error) {
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
	id, _, _ := strings.Cut(strings.TrimSpace(string(out)), ";") // the cluster's name follows the semicolon
	return id, nil
}
