package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/launcher"
)

// clusterFlags are those of the verbs that ask a coordinator.
type clusterFlags struct {
	coordinator, tokenFile string
	json                   bool
}

const tokenUsage = "`file` with the cluster's secret (~/.golaunch/token; GOLAUNCH_TOKEN has the secret itself)"

// newVerbFlags returns a set of flags of one verb, see variables.
func newVerbFlags(verb string) *pflag.FlagSet {
	f := pflag.NewFlagSet(verb, pflag.ContinueOnError)
	f.SortFlags = false
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	f.Usage = func() {}
	return f
}

func (c *clusterFlags) declare(f *pflag.FlagSet) {
	f.StringVar(&c.coordinator, "coordinator", "", "`HOST:PORT` of the coordinator, or of several with commas between them; the one that runs on this machine when empty")
	f.StringVar(&c.tokenFile, "token-file", "", tokenUsage)
	f.BoolVar(&c.json, "json", false, "print JSON")
}

// parseVerb reads a verb's flags, which may stand before and after its arguments, of which there are least to most.
func parseVerb(f *pflag.FlagSet, args []string, least, most int) error {
	if err := f.Parse(args); err != nil {
		return fmt.Errorf("%w: %w; see golaunch help %s", launcher.ErrUsage, err, f.Name())
	}
	if err := fromEnv(f); err != nil {
		return err
	}
	if n := f.NArg(); n < least || n > most {
		v := find(f.Name())
		return fmt.Errorf("%w: golaunch %s %s; this has %d arguments", launcher.ErrUsage, v.name, v.args, n)
	}
	return nil
}
