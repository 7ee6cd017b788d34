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
	"runtime/pprof"
	"strings"
	"syscall"

	"github.com/golaunch/golaunch/launcher"
)

// headVariable has what a coordinator needs that writes a profile when it ends.
const headVariable = "GOLAUNCH_SCALE_HEAD"

func headOf(listen, state, profile string, peers []string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), headVariable+"="+strings.Join([]string{listen, state, profile, strings.Join(peers, ",")}, " "))
	return cmd
}

// runHead is golaunch coordinator, with a profile of the processor.
func runHead(words string) error {
	var listen, state, profile, list string
	_, _ = fmt.Sscan(words, &listen, &state, &profile, &list) // there may be no list
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
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	say := func(text string) { fmt.Println("golaunch:", text) }
	c := launcher.Coordinator{
		Listen: listen, Store: state, Peers: peers, Say: say, Warn: func(err error) { say(err.Error()) },
		Ready: func(at netip.AddrPort) { say("golaunch agent --coordinator " + cmp.Or(list, at.String())) },
	}
	err = c.Serve(ctx)
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close())
}
