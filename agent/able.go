package agent

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/host/bind"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// ask is the context of a new question of the coordinator's, which ends the one before it; before is what ends it.
func (s *share) ask(before *context.CancelFunc) context.Context {
	(*before)()
	ctx, cancel := context.WithCancel(context.Background())
	*before = cancel
	return ctx
}

// able finds out how a rank would end that this node started, of so many, if it is known that it could not be: a gang of which some run is of
// no use. It is the zero value where nothing is known against it. What that then does is done in another goroutine, and not at all once ctx
// has ended.
func (s *share) able(ctx context.Context, ranks int, then func(unable report.Exit)) {
	unable := s.unable(ranks)
	var l *look
	if unable.OK() {
		l = s.look()
	}
	s.agent.done.Go(func() {
		if l != nil {
			unable = l.wait(ctx)
		}
		if ctx.Err() == nil {
			then(unable)
		}
	})
}

// unable is what is known without a look at file systems.
func (s *share) unable(ranks int) report.Exit {
	if s.err != nil {
		return spawnExit(s.err)
	}
	for _, u := range s.units {
		select {
		case <-u.gone:
		default:
			ranks -= len(u.order.Group.Bundles) // their files are open, or about to be
		}
	}
	err := fits(s.sample())
	if ranks > 0 {
		err = errors.Join(err, s.files(ranks), proc.Room(ranks, s.rights()))
	}
	if err != nil {
		return spawnExit(err)
	}
	return report.Exit{}
}

// sample is the command of a rank, but for what differs between ranks and attempts.
func (s *share) sample() proc.Command {
	u := newUnit(s, job.Start{Group: placement.Group{Bundles: make([]placement.Bundle, 1)}})
	u.env, u.bindings = s.work.Task.Env, make([]bind.Binding, 1)
	return u.command(u.order.Group.Bundles[0], "", "", "")
}

// Files that this process opens for a rank: what reads its output and what keeps that, a pidfd, and more while it starts.
const (
	filesPerRank = 5
	filesAtStart = 24
)

// files says that this process may not open as many files as it needs for some ranks.
func (s *share) files(ranks int) error {
	if s.agent.keeper != nil {
		return nil // they are the keeper's, which has no others
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("count the open files: %w", err)
	}
	if need := uint64(len(open) + filesPerRank*ranks + filesAtStart); need > limit.Cur {
		return fmt.Errorf("%d ranks need %d open files, and golaunch may have %d on this node: raise the limit (ulimit -n; LimitNOFILE= of a systemd unit)",
			ranks, need, limit.Cur)
	}
	return nil
}

// Bounds of execve(2), in bytes: of one string, of all of them at least and at most, whatever the stack may have.
const (
	maxString    = 128 << 10
	leastStrings = 128 << 10
	mostStrings  = 6 << 20
	// pathsOfRank is what the names of a rank's files may need in its environment.
	pathsOfRank = 16 << 10
)

// fits says that the kernel would not take a rank's arguments and environment.
func fits(c proc.Command) error {
	size := pathsOfRank
	for _, list := range [][]string{c.Args, c.Env} {
		for _, text := range list {
			if len(text) >= maxString {
				return fmt.Errorf("an argument or variable of the command has %d bytes, and the kernel takes %d: %.40q...", len(text), maxString-1, text)
			}
			size += len(text) + 1 + 8 // with its pointer
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
