// Package startcheck finds out, before a start, why ranks could not be started.
package startcheck

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/launcher/report"
)

// A running rank needs FilesPerRank open files of this process: the ends of its pipes, its log
// files and a pidfd. While the rank starts, it needs more.
const (
	FilesPerRank = 5
	FilesAtStart = 24
)

// Files fails if this process may not open as many files as count ranks need.
func Files(count int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	files, err := os.ReadDir("/proc/self/fd")
	open := uint64(len(files))
	switch {
	case errors.Is(err, unix.EMFILE):
		open = limit.Cur
	case err != nil:
		return fmt.Errorf("count the open files: %w", err)
	}
	if need := open + uint64(FilesPerRank*count+FilesAtStart); need > limit.Cur {
		return fmt.Errorf("%d ranks need %d open files, and golaunch may have %d on this node: raise the limit (ulimit -n; LimitNOFILE= of a systemd unit)",
			count, need, limit.Cur)
	}
	return nil
}

// These are the limits of execve(2), in bytes. The first is for one string. The other two bound the
// limit for all strings, which is a quarter of the stack's limit.
const (
	maxString    = 128 << 10
	leastStrings = 128 << 10
	mostStrings  = 6 << 20
	// fileVariables is how much of a rank's environment the names of its files may take, in bytes.
	fileVariables = 16 << 10
)

// FitsKernel fails if the kernel would refuse the arguments and the environment of a command.
func FitsKernel(c proc.Command) error {
	size := fileVariables
	for _, list := range [][]string{c.Args, c.Env} {
		for _, text := range list {
			if len(text) >= maxString {
				return fmt.Errorf("an argument or variable of the command has %d bytes, and the kernel takes %d: %.40q...", len(text), maxString-1, text)
			}
			size += len(text) + 1 + 8 // with its NUL and its pointer
		}
	}
	var stack unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_STACK, &stack); err != nil {
		return fmt.Errorf("read the limit of the stack: %w", err)
	}
	if most := max(leastStrings, min(mostStrings, stack.Cur/4)); uint64(size) > most {
		return fmt.Errorf("arguments and environment of a rank have %d bytes, and the kernel takes %d, a quarter of its stack (ulimit -s): raise that, or shorten them",
			size, most)
	}
	return nil
}

const (
	// codeOwn is the exit code for failures of golaunch or the node.
	codeOwn = 125
	// codeUsage is the exit code for a job that can never run as requested.
	codeUsage = 2
)

// Exit is the exit of a rank that could not be started.
func Exit(err error) report.Exit {
	if start := (*proc.StartError)(nil); errors.As(err, &start) {
		return start.Exit
	}
	if _, taken := errors.AsType[*logs.TakenError](err); taken {
		return report.Exit{Code: codeUsage, Spawn: err.Error()}
	}
	return report.Exit{Code: codeOwn, Spawn: err.Error()}
}
