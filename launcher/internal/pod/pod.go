// Package pod waits for names that a Kubernetes cluster knows only once their pods run.
package pod

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/cenkalti/backoff/v4"
)

const (
	// NameLimit bounds the wait for the name of a pod that has not started yet, unless the job has
	// a placement timeout.
	NameLimit = 5 * time.Minute
	// maxPause is the longest pause between two questions to the name server.
	maxPause = 2 * time.Second
)

// Inside reports whether this process is in a pod. It reads a variable that the kubelet sets in
// each container.
func Inside() bool { return os.Getenv("KUBERNETES_SERVICE_HOST") != "" }

// Await calls ask. In a pod, while the name server has no answer, it calls ask again, for up to
// NameLimit.
func Await[T any](ctx context.Context, warn func(error), ask func(context.Context) (T, error)) (T, error) {
	found, err := ask(ctx)
	if !Unresolved(err) {
		return found, err
	}
	ctx, cancel := context.WithTimeout(ctx, NameLimit)
	defer cancel()
	return Retry(ctx, warn, found, err, ask)
}

// Retry calls ask until the name is known or ctx ends, and warns of each reason once. last and why
// are the result and the error of a first call, which the caller made. If ctx ends before the name
// is known, Retry returns last and the newest error.
func Retry[T any](ctx context.Context, warn func(error), last T, why error, ask func(context.Context) (T, error)) (T, error) {
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(maxPause),
		backoff.WithMaxElapsedTime(0))
	for said := ""; ctx.Err() == nil; {
		if text := why.Error(); text != said {
			warn(fmt.Errorf("keeps trying: %w", why))
			said = text
		}
		select {
		case <-time.After(wait.NextBackOff()):
		case <-ctx.Done():
			return last, why
		}
		found, err := ask(ctx)
		switch {
		case err == nil:
			return found, nil
		case ctx.Err() != nil:
			return last, why
		case !noAnswer(err):
			return last, err
		}
		why = err
	}
	return last, why
}

// Unresolved reports whether err says, in a pod, that a name server has no answer yet.
func Unresolved(err error) bool { return Inside() && noAnswer(err) }

func noAnswer(err error) bool {
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}
