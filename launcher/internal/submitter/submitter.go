// Package submitter decides as which user the ranks of a job run on this node.
package submitter

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/golaunch/golaunch/internal/host/account"
	"github.com/golaunch/golaunch/launcher/internal/usage"
)

// Policy is the policy of an agent.
type Policy struct {
	// AsSubmitter makes the ranks of each job run as the user who submitted it.
	AsSubmitter bool
	// AllowRoot lets that user, or the agent, be root.
	AllowRoot bool
}

// Check refuses an agent of root that sets neither AsSubmitter nor AllowRoot, and an agent with
// AsSubmitter that is not root.
func (p Policy) Check() error {
	switch root := os.Geteuid() == 0; {
	case p.AsSubmitter && !root:
		return usage.Errorf("an agent with --as-submitter must be root: start it as root, or leave out --as-submitter")
	case root && !p.AsSubmitter && !p.AllowRoot:
		return usage.Errorf("an agent that runs as root gives everybody who has the token the rights of root on this node: run it as another user, or give " +
			"--as-submitter (ranks run as the user who submitted their job) or --allow-run-as-root")
	}
	return nil
}

// User is the user of a job's ranks, or nil for the agent's own. No job falls back to root.
func (p Policy) User(uid *uint32) (*account.User, error) {
	switch {
	case !p.AsSubmitter:
		return nil, nil
	case uid == nil:
		return nil, errors.New("this node runs ranks as the user who submitted them (--as-submitter), and the coordinator does not know that user: " +
			"submit the job on the coordinator's machine, or make sure that munge runs on yours and on the coordinator's")
	case *uid == 0 && p.AllowRoot:
		return nil, nil
	case *uid == 0:
		return nil, errors.New("root submitted the job, and this node runs nothing as root: submit it as another user (or give its agent --allow-run-as-root)")
	}
	u, err := account.Find(context.Background(), *uid)
	if err != nil {
		return nil, fmt.Errorf("this node runs ranks as the user who submitted them (--as-submitter): %w", err)
	}
	return &u, nil
}
