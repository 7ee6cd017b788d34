package main

import "github.com/spf13/pflag"

// clusterFlags are those of the verbs that ask a coordinator.
type clusterFlags struct {
	coordinator, tokenFile string
	json                   bool
}

const tokenUsage = "`file` with the cluster's secret (~/.golaunch/token; GOLAUNCH_TOKEN has the secret itself)"

func (c *clusterFlags) declare(f *pflag.FlagSet) {
	f.StringVar(&c.coordinator, "coordinator", "", "`HOST:PORT` of the coordinator, or of several with commas between them; the one that runs on this machine when empty")
	f.StringVar(&c.tokenFile, "token-file", "", tokenUsage)
	f.BoolVar(&c.json, "json", false, "print JSON")
}
