package stall

import (
	"time"

	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/agent/internal/ranksocket"
	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/internal/process/proc"
)

// These are the least amounts from one look to the next that count as movement of a rank without a
// heartbeat. A rank that waits for others often spins: NCCL keeps a CPU at 100 % and a GPU "busy",
// at less than a third of its power (118 of 400 W in NVIDIA/nccl#2428). So a rank with a GPU moves
// if its GPU draws power, or if its processes touch new memory. A spinning rank touches none.
const (
	movedBytes  = 1 << 20
	movedCPU    = 0.05
	movedFaults = 20 // a second
	movedPower  = 0.4
)

// movement is what a rank had done by the last look.
type movement struct {
	ranks.Rank
	// still counts the looks since the rank last moved, silent the looks since it last wrote
	// anything.
	still, silent int
	used          usage
	power         gpu.Power
	activity      string
	// beats says that the rank has had a heartbeat. From then on only heartbeats count as movement.
	beats bool
	beat  ranks.Heartbeat
	step  int64
	// heard is when the rank monitor last received a message of the rank.
	heard time.Time
}

// moved notes a movement other than a heartbeat.
func (m *movement) moved() {
	if !m.beats {
		m.still = 0
	}
}

// hear notes what the rank says about itself. A message counts as movement. So does an activity
// that has a limit of its own, until the limit is over.
func (m *movement) hear(w ranksocket.Wait) {
	if w.Heard != m.heard || w.Limited && !w.Overdue {
		m.heard = w.Heard
		m.moved()
		m.silent = 0
	}
}

// look reports whether the output and the processes of a rank have moved since the last look.
func (m *movement) look(members []proc.Member, every time.Duration) bool {
	own := ranks.Busiest(members, m.Process.Pid())
	now := usage{written: m.Output.Written()}
	for _, p := range own {
		now.cpu, now.faults, now.bytes = now.cpu+p.CPU, now.faults+int64(p.Faults), now.bytes+int64(p.IO)
	}
	more := now.less(m.used)
	m.used = now
	if m.silent++; more.written != 0 {
		m.silent = 0
	}
	if m.activity = "running"; more.cpu < every/2 && len(own) > 0 {
		m.activity = ranks.Activity(own[0])
	}
	return more.moves(every, m.Bundle.GPU != nil)
}

// usage is what a rank has written and its processes have used. It shrinks if a process ends and
// its parent does not wait for it.
type usage struct {
	written, bytes, faults int64
	cpu                    time.Duration
}

func (u usage) less(v usage) usage {
	return usage{u.written - v.written, u.bytes - v.bytes, u.faults - v.faults, u.cpu - v.cpu}
}

// moves reports whether a rank that only waits would use less than u between two looks.
func (u usage) moves(every time.Duration, gpu bool) bool {
	busy := u.cpu.Seconds() >= movedCPU*every.Seconds()
	fresh := float64(u.faults) >= movedFaults*every.Seconds()
	return u.written != 0 || u.bytes >= movedBytes || busy && (fresh || !gpu)
}

// heartbeat reports whether there is a new heartbeat. The heartbeat file may be removed, for
// example at the end of the user's last session (RemoveIPC in logind.conf(5)). The removal says
// nothing about the rank.
func (m *movement) heartbeat() bool {
	b := ranks.LastHeartbeat(m.Output)
	if b == (ranks.Heartbeat{}) {
		m.beats = false
	}
	if b == (ranks.Heartbeat{}) || b == m.beat {
		return false
	}
	m.beat = b
	if step, ok := b.Step(); ok {
		m.step = step
	}
	return true
}
