package group

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/launcher"
)

// MemoryQuery asks whether processes outside of a job hold memory of the job's GPUs.
type MemoryQuery struct {
	Job string `json:"job"`
	// GPUs are the UUIDs of the job's GPUs, by node.
	GPUs map[string][]string `json:"gpus"`
	// Keep is how many bytes of a GPU's memory each process outside of the job may hold. Whole is
	// how much of a GPU's memory may be in use if the driver does not name the processes; 0 means
	// no check.
	Keep  int64 `json:"keep"`
	Whole int64 `json:"whole"`
	// Within is how long the memory may take to become free.
	Within time.Duration `json:"-"`
}

// GPUMemory is memory of a GPU that another process holds. PID is 0 if the driver does not name the
// process. Job is empty and Rank -1 for a process that is not a rank of the node's agent.
type GPUMemory struct {
	Node  string `json:"node"`
	GPU   string `json:"gpu_uuid"`
	Bytes int64  `json:"bytes"`
	PID   int    `json:"pid"`
	Job   string `json:"job"`
	Rank  int    `json:"rank"`
}

// GPUMemoryError says that the GPUs of a job are not free. Held is the memory that other processes
// hold there, the largest amount first. For each node on which golaunch could not find this out,
// Missing says why.
type GPUMemoryError struct {
	Job string
	// Keep is the memory, in bytes, that each other process was allowed to keep. Within is how long
	// golaunch has waited for the memory to become free.
	Keep    int64
	Within  time.Duration
	Held    []GPUMemory
	Missing []string
}

// namedHeld is how many holders of memory an error names at most.
const namedHeld = 8

func (e *GPUMemoryError) Error() string {
	if len(e.Missing) > 0 {
		return fmt.Sprintf("cannot tell whether the GPUs of %s are free: %s", e.Job, strings.Join(e.Missing[:min(len(e.Missing), namedHeld)], "; "))
	}
	var by []string
	for _, h := range e.Held[:min(len(e.Held), namedHeld)] {
		by = append(by, fmt.Sprintf("%s of %s on %s by %s", gib(h.Bytes), h.GPU, h.Node, h.owner()))
	}
	more := ""
	if n := len(e.Held) - namedHeld; n > 0 {
		more = fmt.Sprintf("; and %d more", n)
	}
	return fmt.Sprintf("the GPUs of %s are not free after %s. Still held: %s%s. Let these free it, or end them; each other process may keep %s of a GPU",
		e.Job, e.Within.Round(time.Second/10), strings.Join(by, "; "), more, gib(e.Keep))
}

func (h GPUMemory) owner() string {
	switch {
	case h.Job != "":
		return fmt.Sprintf("rank %d of %s (pid %d)", h.Rank, h.Job, h.PID)
	case h.PID != 0:
		return fmt.Sprintf("pid %d, which is of no group", h.PID)
	}
	return "processes that the driver does not name"
}

func gib(bytes int64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }

const (
	// lookPause is the pause between two checks. Freed must poll, because there is no event when
	// memory of a GPU is freed.
	lookPause = 200 * time.Millisecond
	// answerLimit bounds the wait for a node's answer.
	answerLimit = 5 * time.Second
)

// Freed checks a job's GPUs by NVML, on each of its nodes, until no process outside of the job
// holds more memory than q allows. When q.Within is over, it returns a [*GPUMemoryError]. If no
// node has a driver, it returns nil.
func Freed(ctx context.Context, client *launcher.Client, q MemoryQuery) error {
	begin := time.Now()
	end := begin.Add(q.Within)
	limited, cancel := context.WithDeadline(ctx, end.Add(answerLimit))
	defer cancel()
	var last *GPUMemoryError // the last complete answer
	for {
		found, checked, err := look(limited, client, q)
		over := time.Until(end) < lookPause
		switch {
		case err == nil && len(found.Held)+len(found.Missing) == 0:
			return q.known(checked)
		case err == nil && over:
			return found
		case err == nil:
			last = found
		case errors.Is(err, launcher.ErrNotThere) || over && ctx.Err() == nil:
			return err
		}
		select {
		case <-time.After(lookPause):
		case <-ctx.Done():
			if last != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				last.Within = time.Since(begin)
				return last
			}
			return fmt.Errorf("the memory of the GPUs of %s is not looked at any more: %w", q.Job, context.Cause(ctx))
		}
	}
}

// known fails if the driver answered for some of the job's GPUs but not for all. If it answered for
// none, the GPUs are declared, and known succeeds.
func (q MemoryQuery) known(checked int) error {
	unknown := -checked
	for _, gpus := range q.GPUs {
		unknown += len(gpus)
	}
	if checked > 0 && unknown > 0 {
		return &GPUMemoryError{Job: q.Job, Keep: q.Keep, Within: q.Within, Missing: []string{fmt.Sprintf("the driver does not know %d of them", unknown)}}
	}
	return nil
}

// look asks the nodes once. It returns the memory that other processes hold, and for how many GPUs
// a driver answered.
func look(ctx context.Context, client *launcher.Client, q MemoryQuery) (*GPUMemoryError, int, error) {
	found, checked := &GPUMemoryError{Job: q.Job, Keep: q.Keep, Within: q.Within}, 0
	silent := maps.Clone(q.GPUs)
	for n, err := range client.GPUs(ctx, q.Job, answerLimit) {
		if err != nil {
			return nil, 0, err
		}
		delete(silent, n.Node)
		switch {
		case len(q.GPUs[n.Node]) == 0:
		case n.Missing != "":
			found.Missing = append(found.Missing, n.Missing)
		default:
			told, held := q.judge(n)
			checked += told
			found.Held = append(found.Held, held...)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(silent)) {
		found.Missing = append(found.Missing, "node "+node+" has no part in the group any more")
	}
	slices.SortStableFunc(found.Held, func(a, b GPUMemory) int { return int(min(1, max(-1, b.Bytes-a.Bytes))) })
	return found, checked, nil
}

// judge returns the memory that other processes hold on a node, and for how many GPUs the driver
// answered.
func (q MemoryQuery) judge(n launcher.NodeSamples) (checked int, held []GPUMemory) {
	for _, uuid := range q.GPUs[n.Node] {
		whole, told := math.NaN(), false
		for _, s := range n.Series {
			if s.GPU != uuid {
				continue
			}
			bytes := s.Samples[0].GPUMemory
			if s.PID == 0 {
				whole = bytes
				checked++
				continue
			}
			told = told || !math.IsNaN(bytes)
			if bytes > float64(q.Keep) && s.Job != q.Job {
				held = append(held, GPUMemory{n.Node, uuid, int64(bytes), s.PID, s.Job, s.Rank})
			}
		}
		if !told && q.Whole > 0 && whole > float64(q.Whole) {
			held = append(held, GPUMemory{Node: n.Node, GPU: uuid, Bytes: int64(whole), Rank: -1})
		}
	}
	return checked, held
}
