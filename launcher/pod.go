package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/golaunch/golaunch/internal/host/account"
	"github.com/golaunch/golaunch/internal/wire/mtls"
)

// inPod says that this process is in a pod: the kubelet sets the variable in every container.
func inPod() bool { return os.Getenv("KUBERNETES_SERVICE_HOST") != "" }

// token is what the nodes share. One that a pod makes for itself is no other pod's.
func (j Job) token() (mtls.Token, error) {
	env := os.Getenv("GOLAUNCH_TOKEN")
	if inPod() && j.Network.TokenFile == "" && env == "" {
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

const (
	// nameLimit bounds the wait for the name of a pod that has not started yet, when no placement timeout does.
	nameLimit = 5 * time.Minute
	// nameEvery is the longest wait between two questions for it.
	nameEvery = 2 * time.Second
)

// meeting is where the nodes meet. In a pod its name may come to be only when that pod runs, and is waited for; the code is for an
// error, and 0 for one like any other.
func (h *here) meeting(ctx context.Context) (at endpoint, code int, err error) {
	if at, err = h.job.Network.meeting(ctx); !inPod() || !unknownYet(err) {
		return at, 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := cmp.Or(h.job.Resources.PlacementTimeout, nameLimit)
	defer time.AfterFunc(limit, func() { cancel(errLate) }).Stop()
	f, over, heard := newFollower(cancel), make(chan struct{}), make(chan struct{})
	go func() {
		f.follow(h.job.Stopping.Signals, over, f.tell)
		close(heard)
	}()
	at, err = untilKnown(ctx, h.warn, at, err, h.job.Network.meeting)
	close(over)
	<-heard
	switch {
	case f.code() != 0:
		return at, f.code(), fmt.Errorf("gave up waiting for the name of %s: %w", h.job.Network.Rendezvous, context.Cause(ctx))
	case err != nil && errors.Is(context.Cause(ctx), errLate):
		return at, 124, fmt.Errorf("waited %v: %w", limit, err)
	}
	return at, 0, err
}

// whenKnown asks for something by its name, which in a pod is waited for.
func whenKnown[T any](ctx context.Context, warn func(error), ask func(context.Context) (T, error)) (T, error) {
	found, err := ask(ctx)
	if !inPod() || !unknownYet(err) {
		return found, err
	}
	ctx, cancel := context.WithTimeout(ctx, nameLimit)
	defer cancel()
	return untilKnown(ctx, warn, found, err, ask)
}

// untilKnown asks again until a name is known or ctx ends, and says each reason once.
func untilKnown[T any](ctx context.Context, warn func(error), at T, why error, ask func(context.Context) (T, error)) (T, error) {
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(nameEvery),
		backoff.WithMaxElapsedTime(0))
	for said := ""; ctx.Err() == nil; {
		if text := why.Error(); text != said {
			warn(fmt.Errorf("keeps trying: %w", why))
			said = text
		}
		select {
		case <-time.After(wait.NextBackOff()):
		case <-ctx.Done():
			return at, why
		}
		found, err := ask(ctx)
		switch {
		case err == nil:
			return found, nil
		case ctx.Err() != nil:
			return at, why
		case !unknownYet(err):
			return at, err
		}
		why = err
	}
	return at, why
}

// unknownYet says that a name server knew no answer, or gave none: it may later.
func unknownYet(err error) bool {
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}
