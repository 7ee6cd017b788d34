package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"

	"github.com/golaunch/golaunch/launcher"
)

// headVariable has the arguments of a coordinator that writes a profile when it ends.
const headVariable = "GOLAUNCH_SCALE_HEAD"

func headOf(ctx context.Context, listen, state, profile string, peers []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), headVariable+"="+strings.Join([]string{listen, state, profile, strings.Join(peers, ",")}, " "))
	return cmd
}

// runHead runs golaunch coordinator, with profiles of its processor time and its memory.
func runHead(words string) error {
	var listen, state, profile, list string
	_, _ = fmt.Sscan(words, &listen, &state, &profile, &list) // the list may be missing
	var peers []string
	if list != "" {
		peers = strings.Split(list, ",")
	}
	f, err := os.Create(profile)
	if err == nil {
		err = pprof.StartCPUProfile(f)
	}
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	kept := make(chan error, 1)
	go func() {
		<-told
		kept <- heap(profile + ".heap") // while the agents are connected
		stop()
	}()
	say := func(text string) { fmt.Println("golaunch:", text) }
	c := launcher.Coordinator{
		Listen: listen, Store: state, Peers: peers, Say: say, Warn: func(err error) { say(err.Error()) },
		Ready: func(at netip.AddrPort) { say("golaunch agent --coordinator " + cmp.Or(list, at.String())) },
	}
	err = c.Serve(ctx)
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close(), <-kept)
}

func heap(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	runtime.GC()
	return errors.Join(pprof.WriteHeapProfile(f), f.Close())
}
