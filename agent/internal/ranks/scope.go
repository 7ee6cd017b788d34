package ranks

import (
	"encoding/json"
	"os"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/agent/internal/keeper"
	"github.com/golaunch/golaunch/internal/process/proc"
)

// Scope is a [proc.Scope], or a [keeper.Scope] whose processes may outlive the agent.
type Scope interface {
	Signal(os.Signal)
	Members() ([]proc.Member, error)
	Stop(sig syscall.Signal, heard bool, grace time.Duration) error
	Linger(limit time.Duration) ([]string, error)
	Rest(grace time.Duration) error
	Kill() error
	Close() error
}

// Starter starts processes under the Keeper if there is one, otherwise under the Supervisor.
type Starter struct {
	Supervisor *proc.Supervisor
	Keeper     *keeper.Keeper
}

// Scope makes a scope. A keeper passes the value of about, in JSON, to the next agent.
func (s Starter) Scope(name string, about any) (Scope, error) {
	if s.Keeper == nil {
		return s.Supervisor.Scope(name)
	}
	data, err := json.Marshal(about)
	if err != nil {
		return nil, err
	}
	return s.Keeper.Scope(name, data)
}

// Start starts a process. A keeper passes the value of about, in JSON, and the files to the next
// agent.
func Start(in Scope, c proc.Command, about any, files ...*os.File) (*proc.Process, error) {
	kept, ok := in.(*keeper.Scope)
	if !ok {
		return in.(*proc.Scope).Start(c)
	}
	data, err := json.Marshal(about)
	if err != nil {
		return nil, err
	}
	return kept.Start(c, data, files...)
}

// Dismiss ends the processes of a scope that still wait to become ranks. A keeper has no such
// processes.
func Dismiss(s Scope) {
	if own, ok := s.(*proc.Scope); ok {
		own.Dismiss()
	}
}

// Forget makes the keeper, if any, forget a scope in which nothing lives.
func Forget(s Scope) {
	if kept, ok := s.(*keeper.Scope); ok {
		kept.Forget()
	}
}
