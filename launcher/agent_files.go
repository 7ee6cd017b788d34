package launcher

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/launcher/internal/jobdir"
	"github.com/golaunch/golaunch/launcher/internal/submitter"
	"github.com/golaunch/golaunch/launcher/internal/usage"
)

// agentJobs makes this node ready for the jobs of a cluster.
type agentJobs struct {
	dir  *jobdir.Agent
	as   submitter.Policy
	warn func(error)
	// ports are those on which this node may listen.
	ports ports.Range
}

// ready prepares a job with the rights of the user who submitted it.
func (a agentJobs) ready(id string, as agent.Assignment, at netip.Addr) (agent.Work, error) {
	user, err := a.as.User(as.Submitter)
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
	environ := os.Environ()
	if user != nil {
		rights, environ = &user.Rights, user.Environ(environ)
		if j.Ranks.MasterPort > 0 && j.Ranks.MasterPort < unprivileged {
			return agent.Work{}, usage.Errorf("master port %d: only root may listen there", j.Ranks.MasterPort)
		}
		if r := j.Network.ports(); !r.Any() && r.First < unprivileged {
			return agent.Work{}, usage.Errorf("port range %v: only root may listen below %d", r, unprivileged)
		}
	}
	allowed, err := a.ports.Within(j.Network.ports())
	if err != nil {
		return agent.Work{}, fmt.Errorf("this node listens on ports %v only, and the job wants others: %w; submit it without --port-range", a.ports, err)
	}
	var work agent.Task
	err = rights.Do(func() (err error) {
		work, err = j.task(at, environ)
		return err
	})
	if err != nil {
		return agent.Work{}, err
	}
	work.Stdin, work.Ports = false, allowed.String() // no job reads the agent's standard input
	dir, err := a.dir.Open(id, j.Output.LogDir, as.Cluster, rights)
	if err != nil {
		return agent.Work{}, err
	}
	return agent.Work{
		Task: work, User: (*agent.User)(rights),
		Output: agent.Output{Dir: dir, Of: j.outputOf(nil, a.warn)},
		Close: func() {
			if err := errors.Join(dir.Close(), a.dir.Done()); err != nil {
				a.warn(err)
			}
		},
	}, nil
}

// unprivileged is the first port at which users other than root may listen
// (ip_unprivileged_port_start).
const unprivileged = 1024
