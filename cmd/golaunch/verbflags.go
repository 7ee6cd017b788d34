package main

import "github.com/spf13/pflag"

// portRangeUsage is the flag's of all verbs that listen.
const portRangeUsage = "listen for other nodes on ports `FIRST:LAST` only, such as 30000:30100, where no port is given; for firewalls"

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
