package agent

import (
	"context"
	"io"
	"time"

	"github.com/golaunch/golaunch/internal/process/stacks"
	"github.com/golaunch/golaunch/internal/wire"
)

// stacksLimit bounds the look into the processes of a node.
const stacksLimit = 5 * time.Second

// readStacks delivers where the ranks of a job are in their programs: the encoded sample of one process in each answer.
func (a *life) readStacks(s *share, ask wire.Ask) {
	var processes []stacks.Process
	if s != nil {
		processes = s.processes()
	}
	var taken []stacks.Sample
	looked := false
	a.reply(ask, func(ctx context.Context) (wire.Answer, error) {
		if !looked {
			limited, cancel := context.WithTimeout(ctx, stacksLimit)
			taken, looked = stacks.Take(limited, processes, stacks.Options{Children: true}), true
			cancel()
		}
		if len(taken) == 0 {
			return wire.Answer{}, io.EOF
		}
		text, err := stacks.Encode(taken[0])
		taken = taken[1:]
		return wire.Answer{Facts: text}, err
	})
}

// processes are those of the ranks that live.
func (s *share) processes() (all []stacks.Process) {
	for _, u := range s.units {
		u.mu.Lock()
		for _, r := range u.all {
			select {
			case <-r.process.Done():
			default:
				all = append(all, stacks.Process{PID: r.process.Pid(), Rank: r.bundle.Rank, Rights: s.rights()})
			}
		}
		u.mu.Unlock()
	}
	return all
}
