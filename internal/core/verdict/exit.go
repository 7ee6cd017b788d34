package verdict

import (
	"slices"
	"strings"

	"github.com/golaunch/golaunch/launcher/report"
)

const sigabrt = 6

// certainty says when an exit decides: before all text, or only if no line of text decides.
type certainty int

const (
	likely certainty = iota
	certain
)

// exits say what the end of a process means without any text. The first match decides.
var exits = []struct {
	when  certainty
	meant func(report.Exit) bool
	rule  Rule
}{
	{certain, func(x report.Exit) bool { return !x.Started() }, Rule{
		Action: report.ActionStop, Cause: "not-started", Title: "the command could not be started", Origin: "execve(2)",
		Remedy: "mend on that node what keeps it from starting",
	}},
	{certain, func(x report.Exit) bool { return x.OOM }, Rule{
		Action: report.ActionRestart, Cause: "host-oom", Title: "the kernel killed it for lack of memory", Origin: "memory.events of its cgroup",
		Remedy: hostMemory,
	}},
	{likely, signal(11), Rule{
		Action: report.ActionRestart, Cause: "segfault", Title: "invalid memory access in native code", Origin: "signal(7)",
		Remedy: "run with PYTHONFAULTHANDLER=1 to see where; look for mixed library versions",
	}},
	{likely, signal(7), Rule{
		Action: report.ActionRestart, Cause: "bus-error", Title: "an access to mapped memory that is gone, often because /dev/shm is full", Origin: "signal(7)",
		Remedy: sharedMemory,
	}},
	{likely, signal(sigabrt), Rule{
		Action: report.ActionRestart, Cause: "aborted", Title: "native code aborted", Origin: "signal(7)",
		Remedy: "read the lines before the end of the rank's log",
	}},
	{likely, signal(4), Rule{
		Action: report.ActionStop, Cause: "illegal-instruction", Title: "built for another CPU", Origin: "signal(7)",
		Remedy: "install a build for this CPU",
	}},
	{likely, signal(9), Rule{
		Action: report.ActionRestart, Cause: "killed", Title: "another process killed it, as far as is known not for lack of memory",
		Origin: "signal(7)",
		Remedy: "find out which did: the scheduler, a limit, an administrator; dmesg shows what the kernel did",
	}},
	{likely, signal(15, 2, 1, 3), Rule{
		Action: report.ActionRestart, Cause: "terminated", Title: "another process asked it to end", Origin: "signal(7)",
		Remedy: "find out which did: the scheduler, an administrator, the program itself",
	}},
}

// signal matches an end by one of these signals, or a shell's exit code for one of them.
func signal(numbers ...int) func(report.Exit) bool {
	return func(x report.Exit) bool {
		return slices.Contains(numbers, x.Signal) || slices.Contains(numbers, x.Code-128)
	}
}

func fromExit(x report.Exit, when certainty) (report.Verdict, bool) {
	for _, e := range exits {
		if e.when == when && e.meant(x) {
			r := e.rule
			return report.Verdict{
				Action: r.Action, Cause: r.Cause, Title: r.Title, Remedy: r.Remedy, From: report.FromExit, Quote: quote(x.Spawn),
			}, true
		}
	}
	return report.Verdict{}, false
}

// notFound is what env(1) writes as its last line if it does not find a command, before it exits
// with 127. A script that begins with #!/usr/bin/env runs env under the script's own name.
var notFound = later(`^(/\S*/)?env: ['\x{2018}](\S+)['\x{2019}]: No such file or directory$`)

// fromEnv recognizes a rank that could not be started because env did not find its command.
func fromEnv(tail text, f report.Failure) (report.Verdict, bool) {
	if f.Exit.Code != 127 || !f.Exit.Started() {
		return report.Verdict{}, false
	}
	last := strings.TrimSpace(tail.body[strings.LastIndexByte(strings.TrimSpace(tail.body), '\n')+1:])
	if !notFound().MatchString(last) {
		return report.Verdict{}, false
	}
	return tail.verdict(exits[0].rule, strings.LastIndex(tail.body, last)), true
}
