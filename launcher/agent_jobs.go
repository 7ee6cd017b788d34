package launcher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/host/account"
	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/launcher/internal/jobdir"
	"github.com/golaunch/golaunch/launcher/internal/usage"
)

// checkUser refuses an agent of root that sets neither AsSubmitter nor AllowRunAsRoot, and an agent
// with AsSubmitter that is not root.
func (a Agent) checkUser() error {
	switch root := os.Geteuid() == 0; {
	case a.AsSubmitter && !root:
		return usage.Errorf("an agent with --as-submitter must be root: start it as root, or leave out --as-submitter")
	case root && !a.AsSubmitter && !a.AllowRunAsRoot:
		return usage.Errorf("an agent that runs as root gives everybody who has the token the rights of root on this node: run it as another user, or give " +
			"--as-submitter (ranks run as the user who submitted their job) or --allow-run-as-root")
	}
	return nil
}

// userOf is the user of a job's ranks, or nil for the agent's own. No job falls back to root.
func (a Agent) userOf(uid *uint32) (*account.User, error) {
	switch {
	case !a.AsSubmitter:
		return nil, nil
	case uid == nil:
		return nil, errors.New("this node runs ranks as the user who submitted them (--as-submitter), and the coordinator does not know that user: " +
			"submit the job on the coordinator's machine, or make sure that munge runs on yours and on the coordinator's")
	case *uid == 0 && a.AllowRunAsRoot:
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

// openJob prepares a job of the cluster with the rights of the user who submitted it. This node,
// whose address is at, may listen on the given ports.
func (a Agent) openJob(id string, as agent.Assignment, at netip.Addr, node *jobdir.Agent, listens ports.Range) (agent.Work, error) {
	user, err := a.userOf(as.Submitter)
	if err != nil {
		return agent.Work{}, err
	}
	var j Job
	d := json.NewDecoder(bytes.NewReader(as.Task))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return agent.Work{}, fmt.Errorf("this agent does not understand the job: %w; install the same golaunch on all nodes", err)
	}
	var rights *safefile.Rights
	environ, wanted := os.Environ(), j.Network.ports()
	if user != nil {
		rights, environ = &user.Rights, user.Environ(environ)
		if port := j.Ranks.MasterPort; port > 0 && port < unprivileged {
			return agent.Work{}, usage.Errorf("master port %d: only root may listen there", port)
		}
		if !wanted.Any() && wanted.First < unprivileged {
			return agent.Work{}, usage.Errorf("port range %v: only root may listen below %d", wanted, unprivileged)
		}
	}
	allowed, err := listens.Within(wanted)
	if err != nil {
		return agent.Work{}, fmt.Errorf("this node listens on ports %v only, and the job wants others: %w; submit it without --port-range", listens, err)
	}
	var task agent.Task
	err = rights.Do(func() (err error) {
		task, err = j.task(at, environ)
		return err
	})
	if err != nil {
		return agent.Work{}, err
	}
	task.Stdin, task.Ports = false, allowed.String() // no job reads the agent's standard input
	dir, err := node.Open(id, j.Output.LogDir, as.Cluster, rights)
	if err != nil {
		return agent.Work{}, err
	}
	return agent.Work{
		Task: task, User: (*agent.User)(rights),
		Output: agent.Output{Dir: dir, Of: j.outputOf(nil, a.Warn)},
		Close: func() {
			if err := errors.Join(dir.Close(), node.Done()); err != nil {
				a.Warn(err)
			}
		},
	}, nil
}

// unprivileged is the first port at which users other than root may listen
// (ip_unprivileged_port_start).
const unprivileged = 1024
