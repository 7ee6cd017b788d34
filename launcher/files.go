package launcher

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/logs"
)

// keptFiles are the files of the jobs that an agent has had.
type keptFiles struct {
	base string
	warn func(error)

	mu sync.Mutex
	// elsewhere are the directories of jobs that had their own.
	elsewhere map[string]string
	// done counts the jobs that are over since the last were removed.
	done int
}

// ready makes ready for a job that was submitted to the cluster.
func (k *keptFiles) ready(id string, task []byte, at netip.Addr) (agent.Work, error) {
	var j Job
	d := json.NewDecoder(bytes.NewReader(task))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return agent.Work{}, fmt.Errorf("this agent does not understand the job: %w; install the same golaunch on all nodes", err)
	}
	work, err := j.task(at)
	if err != nil {
		return agent.Work{}, err
	}
	k.note(id, j.Output.LogDir)
	dir, err := logs.OpenDir(k.place(id), id)
	if err != nil {
		return agent.Work{}, err
	}
	return agent.Work{
		Task:   work,
		Output: agent.Output{Dir: dir, Of: j.output(nil, k.warn)},
		Close: func() {
			if err := errors.Join(dir.Close(), k.released()); err != nil {
				k.warn(err)
			}
		},
	}, nil
}

func (k *keptFiles) note(id, dir string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if dir == "" {
		return
	}
	if len(k.elsewhere) >= keptJobs {
		clear(k.elsewhere)
	}
	k.elsewhere[id] = dir
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

// place is where the directory of a job is.
func (k *keptFiles) place(id string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return cmp.Or(k.elsewhere[id], k.base)
}
