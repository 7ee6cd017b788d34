package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/launcher"
)

// run is the main job: it ends with the root cause's exit code.
func run(io *streams, args []string) (int, error) {
	var o options
	f := newFlags("run", &o)
	if err := parse(f, &o, args); err != nil {
		return helpOr(io, f, err)
	}
	o.job.Stdin, o.job.Standalone, o.job.JSON = true, true, o.json
	o.job.Stdout, o.job.Stderr = io.stdout, io.stderr
	// The token is in this process's memory: neither a core file nor another process of the user may have it.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("cannot protect this process's memory: %w", err)
	}
	signals := make(chan os.Signal, 8)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		if !signal.Ignored(s) { // as under nohup
			signal.Notify(signals, s)
		}
	}
	defer signal.Stop(signals)
	// A console that is gone fails a write; without this, one to descriptor 1 or 2 would end the process (os/signal, SIGPIPE).
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	o.job.Signals = signals
	result, err := launcher.Run(context.Background(), o.job)
	if err != nil && result.Code == 0 {
		fmt.Fprintf(io.stderr, "golaunch: warning: %v\n", err)
		err = nil
	}
	return result.Code, err
}

// helpOr turns --help into the verb's usage.
func helpOr(io *streams, f *pflag.FlagSet, err error) (int, error) {
	if errors.Is(err, pflag.ErrHelp) {
		return help(io, []string{f.Name()})
	}
	return 0, err
}
