package cli

import "github.com/spf13/pflag"

// PortRangeUsage is the help of --port-range.
const PortRangeUsage = "listen for other nodes only on ports `FIRST:LAST`, such as 30000:30100, if no port is given; for firewalls"

// ClusterFlags are the flags of verbs that ask a coordinator.
type ClusterFlags struct {
	Coordinator, TokenFile string
	JSON                   bool
}

const TokenUsage = "`file` with the cluster's secret (~/.golaunch/token; GOLAUNCH_TOKEN has the secret itself)"

func (c *ClusterFlags) Declare(f *pflag.FlagSet) {
	f.StringVar(&c.Coordinator, "coordinator", "", "`HOST:PORT` of the coordinator, or of several, separated by commas; the one on this machine if empty")
	f.StringVar(&c.TokenFile, "token-file", "", TokenUsage)
	f.BoolVar(&c.JSON, "json", false, "print JSON")
}
