package launcher

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/launcher/internal/usage"
)

// keptFiles are the files of the jobs that an agent has had.
type keptFiles struct {
	// base is this agent's alone until owned is closed.
	base  string
	owned io.Closer
	warn  func(error)
	as    submitters
	// ports are those on which this node may listen.
	ports ports.Range

	mu sync.Mutex
	// elsewhere are the directories of jobs that had their own.
	elsewhere map[string]place
	// done counts the jobs that are over since the last were removed.
	done int
}

// take chooses the directory for an agent and takes it. Where the user has said which, in all its
// parts, and another agent has it, this one cannot begin, and neither can one that goes on with the
// ranks that it finds there; any other gets one of its own.
func (k *keptFiles) take(base, name string, asked bool) error {
	run := logs.NewRun()
	for n := 1; ; n++ {
		k.base = filepath.Join(base, name)
		if n > 1 {
			k.base += "." + strconv.Itoa(n)
		}
		var err error
		k.owned, err = logs.TakeBase(k.base, run)
		switch taken, ok := errors.AsType[*logs.TakenError](err); {
		case !ok:
			return err
		case asked || n == maxNamesakes:
			return usage.Errorf("%w: give this agent another --name or --log-dir", taken)
		}
	}
}

// maxNamesakes bounds the agents with one name on a machine that have no directory of their own
// choice.
const maxNamesakes = 100

// place is where the directory of a job is, and whose.
type place struct {
	base  string
	whose logs.Whose
}

// ready makes ready for a job that was submitted to the cluster. What is done for it here is done with the rights of its user.
func (k *keptFiles) ready(id string, as agent.Assignment, at netip.Addr) (agent.Work, error) {
	user, err := k.as.user(as.Submitter)
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
	allowed, err := k.ports.Within(j.Network.ports())
	if err != nil {
		return agent.Work{}, fmt.Errorf("this node listens on ports %v only, and the job wants others: %w; submit it without --port-range", k.ports, err)
	}
	var work agent.Task
	err = rights.Do(func() (err error) {
		work, err = j.task(at, environ)
		return err
	})
	if err != nil {
		return agent.Work{}, err
	}
	work.Stdin, work.Ports = false, allowed.String() // the agent's standard input is nobody else's
	var dir *logs.Dir
	if p := (place{j.Output.LogDir, logs.Whose{Base: rights, Job: rights}}); p.base != "" {
		if dir, err = takeDir(p.whose, p.base, id, as.Cluster, true); err == nil {
			k.note(id, p) // before that, the directory has another job's output
		}
	} else {
		dir, err = logs.Whose{Job: rights}.OpenDir(k.base, id)
	}
	if err != nil {
		return agent.Work{}, err
	}
	return agent.Work{
		Task: work, User: (*agent.User)(rights),
		Output: agent.Output{Dir: dir, Of: j.output(nil, k.warn)},
		Close: func() {
			if err := errors.Join(dir.Close(), k.released()); err != nil {
				k.warn(err)
			}
		},
	}, nil
}

// unprivileged is the first port at which others than root may listen (ip_unprivileged_port_start).
const unprivileged = 1024

func (k *keptFiles) note(id string, p place) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.elsewhere) >= keptJobs {
		clear(k.elsewhere)
	}
	k.elsewhere[id] = p
}

// prunedEvery is the number of jobs after which old ones are looked for: that costs some system calls for each that is kept.
const prunedEvery = 20

func (k *keptFiles) released() error {
	k.mu.Lock()
	k.done++
	prune := k.done%prunedEvery == 0
	k.mu.Unlock()
	if !prune {
		return nil
	}
	return logs.Prune(k.base, keptJobs-prunedEvery)
}

// past opens the directory of a job that is over. What is in base this agent, or one before it, has given to its owner.
func (k *keptFiles) past(id string) (*logs.Dir, error) {
	k.mu.Lock()
	p, elsewhere := k.elsewhere[id]
	k.mu.Unlock()
	if !elsewhere {
		p.base = k.base
	}
	if info, err := os.Lstat(filepath.Join(k.base, id)); !elsewhere && k.as.each && err == nil {
		p.whose.Job = safefile.Of(info)
	}
	return p.whose.FindDir(p.base, id)
}
