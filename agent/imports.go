package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/golaunch/golaunch/internal/process/proc"
)

// warm waits until the attempt's ranks can be forked, or it is known that they cannot; the error is why they must not start at all.
func (u *unit) warm() error {
	p := u.share.preload
	if p == nil {
		return nil
	}
	began := time.Now()
	env := u.command(u.order.Group.Bundles[0], "", "", "").Env
	w, release, err := p.ready(u.halted, env)
	u.release = release
	u.imports.Waited = time.Since(began)
	switch {
	case u.halted.Err() != nil:
		return errors.New("stopped while modules were imported for the ranks")
	case err == nil:
		u.server, u.imports.Took = w.forker(), w.server.Took
	case u.share.work.Task.PreloadStrict:
		return fmt.Errorf("the ranks cannot be forked (--preload-strict): %w", err)
	default:
		u.unforked(err)
	}
	return nil
}

// count notes how a rank was started.
func (u *unit) count(p *proc.Process) {
	u.counting.Lock()
	defer u.counting.Unlock()
	switch forked, err := p.Forked(); {
	case forked:
		u.imports.Forked++
	case err != nil:
		u.unforked(err)
	}
}

// unforked says once why ranks are started the old way.
func (u *unit) unforked(why error) {
	if u.imports.Why == "" {
		u.imports.Why = why.Error()
	}
	u.share.preload.warn(u.agent.session.Node.Name, why)
}
