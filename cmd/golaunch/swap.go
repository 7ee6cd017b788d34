package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/launcher"
)

type swapOptions struct {
	clusterFlags
	within time.Duration
}

func newSwapFlags(o *swapOptions) *pflag.FlagSet {
	f := newVerbFlags("swap")
	o.declare(f)
	f.DurationVar(&o.within, "within", 2*time.Minute, "how long the ranks of its jobs have to get ready, see GOLAUNCH_NOTICE_FILE")
	return f
}

// swap takes a node out of its jobs, which go on elsewhere at no cost, and returns when its agent has left.
func swap(io *streams, args []string) (int, error) {
	var o swapOptions
	f := newSwapFlags(&o)
	if err := parseVerb(f, args, 1, 1); err != nil {
		return helpOr(io, f, err)
	}
	if o.within < 0 {
		return 0, fmt.Errorf("%w: --within %s: at least 0s", launcher.ErrUsage, o.within)
	}
	ctx := context.Background()
	c, err := launcher.Connect(ctx, o.coordinator, o.tokenFile)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.Swap(ctx, f.Arg(0), o.within); err != nil {
		return 0, err
	}
	if o.json {
		return 0, writeJSON(io.stdout, struct {
			Node string `json:"node"`
		}{f.Arg(0)})
	}
	io.say(f.Arg(0) + " has left")
	return 0, nil
}
