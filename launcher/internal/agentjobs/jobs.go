// Package agentjobs makes a node of a cluster ready for jobs, with the rights of their submitters.
package agentjobs

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/launcher/internal/jobdir"
	"github.com/golaunch/golaunch/launcher/internal/submitter"
	"github.com/golaunch/golaunch/launcher/internal/usage"
)

// Node has what the preparation of a job must know of the node.
type Node struct {
	Dir  *jobdir.Agent
	As   submitter.Policy
	Warn func(error)
	// Ports are the ports on which this node may listen.
	Ports ports.Range
}

// Job has the parts of a job that the node needs.
type Job struct {
	// MasterPort is the port of the job's store; 0 means any free port.
	MasterPort int
	// Ports are the ports that the job may use.
	Ports  ports.Range
	LogDir string
	// Task returns what the job's ranks run here, at an address, with the environment that they
	// inherit.
	Task   func(at netip.Addr, environ []string) (agent.Task, error)
	Output func(agent.Speaker) logs.RankOptions
}

// Ready prepares a job with the rights of the user who submitted it. It reads the job's task with
// parse.
func (n Node) Ready(id string, as agent.Assignment, at netip.Addr, parse func(task []byte) (Job, error)) (agent.Work, error) {
	user, err := n.As.User(as.Submitter)
	if err != nil {
		return agent.Work{}, err
	}
	j, err := parse(as.Task)
	if err != nil {
		return agent.Work{}, fmt.Errorf("this agent does not understand the job: %w; install the same golaunch on all nodes", err)
	}
	var rights *safefile.Rights
	environ := os.Environ()
	if user != nil {
		rights, environ = &user.Rights, user.Environ(environ)
		if j.MasterPort > 0 && j.MasterPort < unprivileged {
			return agent.Work{}, usage.Errorf("master port %d: only root may listen there", j.MasterPort)
		}
		if !j.Ports.Any() && j.Ports.First < unprivileged {
			return agent.Work{}, usage.Errorf("port range %v: only root may listen below %d", j.Ports, unprivileged)
		}
	}
	allowed, err := n.Ports.Within(j.Ports)
	if err != nil {
		return agent.Work{}, fmt.Errorf("this node listens on ports %v only, and the job wants others: %w; submit it without --port-range", n.Ports, err)
	}
	var task agent.Task
	err = rights.Do(func() (err error) {
		task, err = j.Task(at, environ)
		return err
	})
	if err != nil {
		return agent.Work{}, err
	}
	task.Stdin, task.Ports = false, allowed.String() // no job reads the agent's standard input
	dir, err := n.Dir.Open(id, j.LogDir, as.Cluster, rights)
	if err != nil {
		return agent.Work{}, err
	}
	return agent.Work{
		Task: task, User: (*agent.User)(rights),
		Output: agent.Output{Dir: dir, Of: j.Output},
		Close: func() {
			if err := errors.Join(dir.Close(), n.Dir.Done()); err != nil {
				n.Warn(err)
			}
		},
	}, nil
}

// unprivileged is the first port at which users other than root may listen
// (ip_unprivileged_port_start).
const unprivileged = 1024
