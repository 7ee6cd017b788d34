package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/launcher"
)

// aliases maps other names of a job's flags, such as torchrun's, to golaunch's names.
var aliases = map[string]string{
	"nnodes":        "nodes",
	"rdzv-endpoint": "rendezvous",
	"rdzv-id":       "job-id",
	"gpus":          "gpu-ids",
}

// NormalizeName maps _ to - and an alias to its flag.
func NormalizeName(f *pflag.FlagSet, name string) pflag.NormalizedName {
	name = strings.ReplaceAll(name, "_", "-")
	switch verb := f.Name(); {
	case verb == "agent" && name == "gpus":
		name = "num-gpus"
	case verb == "logs" && name == "rank":
		name = "ranks"
	case verb == "plan" && name == "dry-run":
		name = "explain"
	case aliases[name] != "" && verb != "agent":
		name = aliases[name]
	}
	return pflag.NormalizedName(name)
}

// fromVariable is the annotation that names the variable from which a flag was set.
const fromVariable = "variable"

// kinds says, for each of Go's own types, what value a flag of that type takes.
var kinds = map[string]string{
	"int": "a whole number", "int64": "a whole number", "duration": "a time with its unit, such as 30s, 5m or 1h", "float64": "a number", "bool": "true or false",
}

// PlainError describes a bad value without the words of Go's packages.
func PlainError(err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok || kinds[invalid.GetFlag().Value.Type()] == "" {
		return err
	}
	flag := invalid.GetFlag()
	return fmt.Errorf("invalid argument %q for \"--%s\": want %s", invalid.GetValue(), flag.Name, kinds[flag.Value.Type()])
}

// SetFromEnv sets flags that were not given from golaunch's variables, or else from torchrun's PET_
// variables.
func SetFromEnv(f *pflag.FlagSet) error {
	ours := func(v string) bool { return strings.HasPrefix(v, "GOLAUNCH_") || strings.HasPrefix(v, "PET_") }
	if !slices.ContainsFunc(os.Environ(), ours) {
		return nil
	}
	var errs []error
	f.VisitAll(func(flag *pflag.Flag) {
		for _, name := range Variables(f.Name(), flag.Name) {
			value, ok := os.LookupEnv(name)
			if !ok || flag.Changed {
				continue
			}
			if err := f.Set(flag.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, PlainError(err)))
			}
			notes := maps.Clone(flag.Annotations) // the flags of a group share the map
			if notes == nil {
				notes = map[string][]string{}
			}
			notes[fromVariable] = []string{name}
			flag.Annotations = notes
		}
	})
	if len(errs) > 0 {
		return fmt.Errorf("%w: %w", launcher.ErrUsage, errors.Join(errs...))
	}
	return nil
}

// Variables returns the variables that set a flag of a verb, the strongest first. A flag of a
// single request to a coordinator has no variable: GOLAUNCH_ALL=true, for example, would make every
// golaunch stop end all jobs. A flag whose variable golaunch sets for ranks has none either.
func Variables(verb, flag string) []string {
	upper := func(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
	switch flag {
	case "help", "help-all", "version":
		return nil
	}
	switch verb {
	case "status", "jobs", "cost", "logs", "stop", "swap":
		if flag != "coordinator" && flag != "token-file" {
			return nil
		}
	case "up", "down":
		return nil
	case "coordinator":
		if flag == "give-back" {
			return nil
		}
	case "plan":
		if flag == "node" || flag == "rank" {
			return nil
		}
	case "agent":
		switch flag {
		case "drain", "no-wait":
			return nil
		case "num-gpus":
			return []string{"GOLAUNCH_AGENT_GPUS"}
		}
	}
	names := []string{"GOLAUNCH_" + upper(flag)}
	switch flag {
	case "nproc-per-node", "max-restarts", "master-port", "log-dir":
		names = append(names, "PET_"+upper(flag))
	}
	for alias, to := range aliases {
		switch {
		case to != flag:
		case to == "gpu-ids":
			names = append(names, "GOLAUNCH_"+upper(alias))
		default:
			names = append(names, "PET_"+upper(alias))
		}
	}
	return names
}

// badValue is an error in the value of a flag or of its variable.
type badValue struct {
	flag, name string
	err        error
}

func (b *badValue) Error() string { return fmt.Sprintf("%v: %s: %v", launcher.ErrUsage, b.name, b.err) }

func (b *badValue) Unwrap() []error { return []error{launcher.ErrUsage, b.err} }

func BadFlag(flag string, err error) error { return &badValue{flag, "--" + flag, err} }

// NameVariable adds the variable's name to the error of a flag if a variable set the flag.
func NameVariable(f *pflag.FlagSet, err error) error {
	if wrong, ok := errors.AsType[*badValue](err); ok {
		if variable := f.Lookup(wrong.flag).Annotations[fromVariable]; len(variable) > 0 {
			wrong.name = variable[0]
		}
	}
	return err
}
