package imports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/golaunch/golaunch/agent/internal/forkserver"
	"github.com/golaunch/golaunch/agent/internal/keeper"
	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/launcher/report"
)

// Server is a fork server that imports, or has imported, modules. Until imported is closed, only
// key and env may be read.
type Server struct {
	key      string
	env      []string
	imported chan struct{}
	// err says why nothing can be forked.
	err     error
	scope   ranks.Scope
	process *proc.Process
	server  *forkserver.Server
	// kept is the keeper's end of the server; nil without a keeper.
	kept   *keeper.Server
	cancel context.CancelCauseFunc
	// rights are the rights of the user who owns the process.
	rights *safefile.Rights
	// users counts the attempts that wait for the server or fork from it.
	users sync.WaitGroup
	// expiry ends the server when it has been in a pool for too long.
	expiry *time.Timer
}

// Took returns how long the imports took.
func (s *Server) Took() time.Duration { return s.server.Took }

// Modules returns the modules whose imports took longest.
func (s *Server) Modules() []report.Module { return s.server.Modules }

// Forker returns the forker with which the ranks start.
func (s *Server) Forker() proc.Forker {
	if s.kept != nil {
		return s.kept
	}
	return s.server
}

// usable reports whether the server has imported its modules and lives.
func (s *Server) usable() bool {
	select {
	case <-s.imported:
		return s.server != nil && s.stale(s.env) == nil
	default:
		return false
	}
}

// stale says why the server cannot fork ranks with an environment any more. It returns nil if the
// server can. A server whose imports failed is not stale: in a new server they would fail
// again.
func (s *Server) stale(env []string) error {
	if !slices.Equal(s.env, env) {
		return errors.New("the ranks have other variables than the fork server, such as OMP_NUM_THREADS")
	}
	select {
	case <-s.imported:
	default:
		return nil
	}
	if s.server == nil {
		return nil
	}
	select {
	case <-s.process.Done():
		return fmt.Errorf("the fork server %v", s.process.Exit())
	default:
	}
	err := s.server.Err()
	if s.kept != nil {
		err = s.kept.Err()
	}
	if err != nil {
		return err
	}
	return changed(s.server, s.rights)
}

// statLimit bounds the look at files. A dead file system must not prevent the stop of ranks.
const statLimit = 10 * time.Second

// changed fails if a file of the modules has changed, or may have.
func changed(files interface{ Changed(*safefile.Rights) error }, rights *safefile.Rights) error {
	found := make(chan error, 1)
	go func() { found <- files.Changed(rights) }()
	select {
	case err := <-found:
		return err
	case <-time.After(statLimit):
		return fmt.Errorf("the files of its modules have not answered for %v", statLimit)
	}
}

// errUnused says why a server is ended.
var errUnused = errors.New("no job needs the fork server any more")

// end ends the server and waits until it has ended.
func (s *Server) end(warn func(error)) {
	s.cancel(errUnused)
	<-s.imported
	if s.kept != nil {
		s.kept.Close()
	}
	if s.server != nil {
		_ = s.server.Close()
	}
	if s.scope != nil {
		if err := s.scope.Close(); err != nil {
			warn(fmt.Errorf("end the fork server: %w", err))
		}
		ranks.Forget(s.scope)
	}
}
