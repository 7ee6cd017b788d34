package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/golaunch/golaunch/agent/internal/forkserver"
	"github.com/golaunch/golaunch/agent/internal/keeper"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/proc"
)

// warm is a server that imports, or has imported. Its fields but done may be read once done is closed.
type warm struct {
	key     string
	env     []string
	scope   scope
	process *proc.Process
	server  *forkserver.Server
	// kept is the keeper's end of it, where ranks outlive this agent.
	kept   *keeper.Server
	err    error
	done   chan struct{}
	cancel context.CancelCauseFunc
	// rights are whose process it is, and users the units that wait for it or fork.
	rights *safefile.Rights
	users  sync.WaitGroup
	// expiry ends it while it is in a pool.
	expiry *time.Timer
}

// usable says that a server has imported its modules and lives.
func (w *warm) usable() bool {
	select {
	case <-w.done:
		return w.server != nil && w.stale(w.env) == ""
	default:
		return false
	}
}

// stale says why a server cannot be used any more. One whose imports failed stays: they would fail again.
func (w *warm) stale(env []string) string {
	if !slices.Equal(w.env, env) {
		return "the ranks have other variables than were foreseen, such as OMP_NUM_THREADS"
	}
	select {
	case <-w.done:
	default:
		return ""
	}
	if w.server == nil {
		return ""
	}
	select {
	case <-w.process.Done():
		return fmt.Sprintf("the fork server %v", w.process.Exit())
	default:
	}
	err := w.server.Err()
	if w.kept != nil {
		err = w.kept.Err()
	}
	if err != nil {
		return err.Error()
	}
	return changed(w.server, w.rights)
}

// changed says which file of modules is another now.
func changed(files interface{ Changed(*safefile.Rights) string }, rights *safefile.Rights) string {
	found := make(chan string, 1)
	go func() { found <- files.Changed(rights) }()
	select {
	case path := <-found:
		if path != "" {
			path += " has changed"
		}
		return path
	case <-time.After(statLimit):
		return fmt.Sprintf("the files of its modules cannot be looked at for %v", statLimit)
	}
}

// statLimit bounds the look at files: a file system that is dead must not keep ranks from being stopped.
const statLimit = 10 * time.Second

// forker makes ranks of a server that is ready.
func (w *warm) forker() proc.Forker {
	if w.kept != nil {
		return w.kept
	}
	return w.server
}

// errOver is why a server is ended that nobody needs any more.
var errOver = errors.New("nobody needs the fork server any more")

// end ends a server and waits until it has.
func (w *warm) end(warn func(error)) {
	w.cancel(errOver)
	<-w.done
	if w.kept != nil {
		w.kept.Close()
	}
	if w.server != nil {
		_ = w.server.Close()
	}
	if w.scope != nil {
		if err := w.scope.Close(); err != nil {
			warn(fmt.Errorf("end the fork server: %w", err))
		}
		if kept, ok := w.scope.(*keeper.Scope); ok {
			kept.Forget()
		}
	}
}
