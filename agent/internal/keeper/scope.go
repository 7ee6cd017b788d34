package keeper

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/host/helper/frame"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/process/procfs"
	"github.com/golaunch/golaunch/launcher/report"
)

// Scope is a [proc.Scope] in the keeper, with the same methods.
type Scope struct {
	// Data was given to [Keeper.Scope]. An earlier agent started Ranks.
	Data  []byte
	Ranks []Rank
	// Stopped says that the earlier agent had ordered the end of the scope.
	Stopped bool

	keeper *Keeper
	id     int
	// since is older than all processes of the scope. It is zero if an older keeper does not send
	// it.
	since procfs.Epoch
	// alive are the processes whose exit is not known. fresh are the processes that Start has not
	// returned yet. The keeper's mutex guards both.
	alive map[int]func(report.Exit, time.Time)
	fresh map[int]*proc.Process
}

// Rank is a process with its agent's data and files.
type Rank struct {
	Data    []byte
	Process *proc.Process
	// Files are descriptors. The caller owns them.
	Files []int
}

// Scope makes a scope, with data for the next agent.
func (k *Keeper) Scope(name string, data []byte) (*Scope, error) {
	m, err := k.ask(message{Do: doScope, Name: name, Data: data})
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.scope(m, data), nil
}

// scope adds a scope from a message of the keeper.
func (k *Keeper) scope(m message, data []byte) *Scope {
	sc := &Scope{
		Data: data, keeper: k, id: m.ID, alive: map[int]func(report.Exit, time.Time){}, fresh: map[int]*proc.Process{},
	}
	if m.Since != nil {
		sc.since = *m.Since
	}
	k.scopes[m.ID] = sc
	return sc
}

func (sc *Scope) process(m message) *proc.Process {
	var unforked error
	if m.Unforked != "" {
		unforked = errors.New(m.Unforked)
	}
	p, end := proc.Kept(m.PID, m.Forked, unforked)
	sc.alive[m.PID] = end
	return p
}

func (sc *Scope) ended(m message) {
	if end := sc.alive[m.PID]; end != nil {
		delete(sc.alive, m.PID)
		end(*m.Exit, m.Ended)
	}
}

// Start starts a process. The keeper keeps data and duplicates of files for the next agent.
func (sc *Scope) Start(c proc.Command, data []byte, files ...*os.File) (*proc.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	if c.Dir == "" {
		if c.Dir, err = os.Getwd(); err != nil {
			return nil, err
		}
	}
	var fds []int
	defer func() { frame.Close(fds) }()
	for _, f := range append([]*os.File{c.Stdin, c.Stdout, c.Stderr}, files...) {
		if f == nil {
			f = null
		}
		fd, err := proc.Duplicate(f)
		if err != nil {
			return nil, fmt.Errorf("start %q: %w", c.Path, err)
		}
		fds = append(fds, fd)
	}
	order := message{Do: doStart, ID: sc.id, Command: fromCommand(c), Data: data}
	server, ok := c.Forker.(*Server)
	if ok {
		order.Server, order.ForkOnly = server.id, c.ForkOnly
	}
	m, err := sc.keeper.ask(order, fds...)
	if ok {
		server.heard(m)
	}
	switch {
	case m.Exit != nil:
		return nil, &proc.StartError{Exit: *m.Exit}
	case err != nil:
		return nil, fmt.Errorf("start %q: %w", c.Path, err)
	}
	sc.keeper.mu.Lock()
	defer sc.keeper.mu.Unlock()
	p := sc.fresh[m.PID]
	delete(sc.fresh, m.PID)
	return p, nil
}

func (sc *Scope) Signal(sig os.Signal) {
	if number, ok := sig.(syscall.Signal); ok {
		sc.keeper.say(message{Do: doSignal, ID: sc.id, Signal: int(number)})
	}
}

func (sc *Scope) Members() ([]proc.Member, error) {
	sc.keeper.mu.Lock()
	leaders := slices.Collect(maps.Keys(sc.alive))
	sc.keeper.mu.Unlock()
	return proc.Members(leaders, sc.since)
}

func (sc *Scope) Stop(sig syscall.Signal, heard bool, grace time.Duration) error {
	return sc.end(message{Do: doStop, Signal: int(sig), Heard: heard, At: grace})
}
func (sc *Scope) Rest(grace time.Duration) error { return sc.end(message{Do: doRest, At: grace}) }
func (sc *Scope) Kill() error                    { return sc.end(message{Do: doKill}) }
func (sc *Scope) Close() error                   { return sc.end(message{Do: doClose}) }

func (sc *Scope) Linger(limit time.Duration) ([]string, error) {
	m, err := sc.keeper.ask(message{Do: doLinger, ID: sc.id, At: limit})
	return m.Names, err
}

func (sc *Scope) end(m message) error {
	m.ID = sc.id
	_, err := sc.keeper.ask(m)
	return err
}

// Forget makes the keeper forget a scope that is closed.
func (sc *Scope) Forget() {
	sc.keeper.say(message{Do: doForget, ID: sc.id})
	sc.keeper.mu.Lock()
	defer sc.keeper.mu.Unlock()
	delete(sc.keeper.scopes, sc.id)
}
