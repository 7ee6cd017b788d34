package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/golaunch/golaunch/internal/host/account"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/launcher/internal/pod"
	"github.com/golaunch/golaunch/launcher/internal/signals"
)

// token is what the nodes share. One that a pod makes for itself is no other pod's.
func (j Job) token() (mtls.Token, error) {
	env := os.Getenv("GOLAUNCH_TOKEN")
	if pod.Inside() && j.Network.TokenFile == "" && env == "" {
		home, err := account.Home()
		if err == nil {
			_, err = os.Stat(filepath.Join(home, ".golaunch", "token"))
		}
		if err != nil {
			return mtls.Token{}, errors.New("this pod has no token that the others share; set GOLAUNCH_TOKEN from a Secret in all of them")
		}
	}
	return mtls.LoadToken(j.Network.TokenFile, env)
}

// meeting is where the nodes meet. In a pod its name may come to be only when that pod runs, and is waited for; the code is for an
// error, and 0 for one like any other.
func (h *here) meeting(ctx context.Context) (at address.Endpoint, code int, err error) {
	if at, err = h.job.Network.meeting(ctx); !pod.Unresolved(err) {
		return at, 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := cmp.Or(h.job.Resources.PlacementTimeout, pod.NameLimit)
	defer time.AfterFunc(limit, func() { cancel(errLate) }).Stop()
	f, over, heard := signals.NewNode(cancel), make(chan struct{}), make(chan struct{})
	go func() {
		signals.Follow(h.job.Stopping.Signals, over, f.Tell)
		close(heard)
	}()
	at, err = pod.Retry(ctx, h.warn, at, err, h.job.Network.meeting)
	close(over)
	<-heard
	switch {
	case f.Code() != 0:
		return at, f.Code(), fmt.Errorf("gave up waiting for the name of %s: %w", h.job.Network.Rendezvous, context.Cause(ctx))
	case err != nil && errors.Is(context.Cause(ctx), errLate):
		return at, 124, fmt.Errorf("waited %v: %w", limit, err)
	}
	return at, 0, err
}
