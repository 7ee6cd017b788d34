package agent

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/internal/process/proc"
)

// What counts as movement of a rank without heartbeat, between two looks. One that waits for others spins as often as it sleeps: NCCL
// keeps a CPU at 100 % and a GPU "busy", at less than a third of its power (NVIDIA/nccl#2428 has 118 of 400 W). So a rank with a GPU
// moves when its CPUs touch new memory, as who spins does not, or its GPU draws power.
const (
	movedBytes  = 1 << 20
	movedCPU    = 0.05
	movedFaults = 20 // a second
	movedPower  = 0.4
)

// pulse is what a rank did until the last look.
type pulse struct {
	rank
	// still counts the looks since it moved, and mute those since it said anything.
	still, mute int
	used        usage
	power       gpu.Power
	does        string
	// beats says that it ever had a heartbeat, and then only those count: beat is the newest, of a step.
	beats bool
	beat  heartbeat
	step  int64
}

// move notes a movement, which does not count for a rank with heartbeats.
func (p *pulse) move() {
	if !p.beats {
		p.still = 0
	}
}

// take looks at the output and the processes of a rank, and says whether they have moved.
func (p *pulse) take(members []proc.Member, look time.Duration) bool {
	mine := busiest(members, p.process.Pid())
	now := usage{written: p.output.Written()}
	for _, m := range mine {
		now.cpu, now.faults, now.bytes = now.cpu+m.CPU, now.faults+int64(m.Faults), now.bytes+int64(m.IO)
	}
	more := now.less(p.used)
	p.used = now
	if p.mute++; more.written != 0 {
		p.mute = 0
	}
	if p.does = "running"; more.cpu < look/2 && len(mine) > 0 {
		p.does = does(mine[0])
	}
	return more.moves(look, p.bundle.GPU != nil)
}

// usage is what a rank has written, and what its processes have used. One that ends takes its part along, unless its parent is there.
type usage struct {
	written, bytes, faults int64
	cpu                    time.Duration
}

func (u usage) less(v usage) usage {
	return usage{u.written - v.written, u.bytes - v.bytes, u.faults - v.faults, u.cpu - v.cpu}
}

// moves says whether that is more, from one look to the next, than a rank uses that waits.
func (u usage) moves(look time.Duration, gpu bool) bool {
	busy := u.cpu.Seconds() >= movedCPU*look.Seconds()
	fresh := float64(u.faults) >= movedFaults*look.Seconds()
	return u.written != 0 || u.bytes >= movedBytes || busy && (fresh || !gpu)
}

// does is what a process is, in a word and the function of the kernel that it waits in.
func does(m proc.Member) string {
	word := map[byte]string{'R': "running", 'S': "asleep", 'D': "blocked", 'T': "stopped", 't': "traced"}[m.State]
	if m.State != 'S' && m.State != 'D' {
		return word
	}
	if in, err := os.ReadFile("/proc/" + strconv.Itoa(m.PID) + "/wchan"); err == nil && len(in) > 1 {
		word += fmt.Sprintf(" (%s)", in)
	}
	return word
}

// heartbeat is what a rank left in its heartbeat file: the file's time, and the beginning of its text.
type heartbeat struct {
	at   time.Time
	text string
}

// maxBeat is what is read of a heartbeat, in bytes.
const maxBeat = 256

// lastBeat reads a heartbeat; it is the zero one where there is none. What is written in part is read at the next look.
func lastBeat(output *logs.Rank) (b heartbeat) {
	f, err := output.OpenHeartbeat()
	if err != nil {
		return b
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return b
	}
	text, err := io.ReadAll(io.LimitReader(f, maxBeat))
	if err != nil {
		return b
	}
	return heartbeat{info.ModTime(), string(text)}
}

// step is how far the program says it is; false when it does not.
func (b heartbeat) step() (int64, bool) {
	words := strings.Fields(b.text)
	if len(words) == 0 {
		return 0, false
	}
	step, err := strconv.ParseInt(words[0], 10, 64)
	return step, err == nil && step >= 0
}

// total is how many steps the program says that there will be; false when it does not.
func (b heartbeat) total() (int64, bool) {
	words := strings.Fields(b.text)
	if len(words) < 2 {
		return 0, false
	}
	total, err := strconv.ParseInt(words[1], 10, 64)
	return total, err == nil && total > 0
}

// listen says whether there is a new heartbeat. A file that is gone, as with the user's last session (RemoveIPC of logind.conf(5)), tells
// nothing of the rank.
func (p *pulse) listen() bool {
	b := lastBeat(p.output)
	if b == (heartbeat{}) {
		p.beats = false
	}
	if b == (heartbeat{}) || b == p.beat {
		return false
	}
	p.beat = b
	if step, ok := b.step(); ok {
		p.step = step
	}
	return true
}
