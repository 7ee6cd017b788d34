package verdict

import (
	"github.com/golaunch/golaunch/launcher/report"
)

// asked has the rules for lines with which a rank tells its launcher what to do next. The agent
// writes these lines.
var asked = []row{
	{
		action: report.ActionStop, cause: "end-asked", title: "a rank asked that the job does not start again",
		patterns: `golaunch: rank \d+ asks for the end of the job`,
		remedy:   "read what the rank said; it knows why another attempt would not help", asked: true,
		origin: "nvidia-resiliency-ext WorkloadAction.ShutdownWorkload",
	}, {
		action: report.ActionReplace, cause: "exclude-asked", title: "a rank asked for a restart without its node",
		patterns: `golaunch: rank \d+ asks for a restart without this node`,
		remedy:   "look at that machine", asked: true,
		origin: "nvidia-resiliency-ext WorkloadAction.ExcludeThisNode",
	}, {
		action: report.ActionRestart, cause: "restart-asked", title: "a rank asked for a restart of its process",
		patterns: `golaunch: rank \d+ asks for a restart of its process`,
		remedy:   "none is needed: the program could not restart within its process", asked: true,
		origin: "hyperpod-elastic-agent RestartMode",
	},
}
