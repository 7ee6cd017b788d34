package wire

import (
	"fmt"
)

// RAS is what the RAS service of a job's NCCL says. It knows about all ranks, whichever is asked.
type RAS struct {
	// NCCL is the version of the rank that was asked; it is empty when none answers, and Why then says why.
	NCCL string
	Why  string
	// Communicators counts those of the job, Processes those in them, and Responding those that have answered.
	Communicators int
	Processes     int
	Responding    int
	// Behind are those that others wait for, 16 at most.
	Behind []Laggard
}

// Laggard is a process that has started fewer collectives than others, or does not answer them. Host is an IP address.
type Laggard struct {
	Host string
	PID  int
	Why  string
}

// String is the report in one line.
func (r RAS) String() string {
	if r.NCCL == "" {
		return r.Why
	}
	text := fmt.Sprintf("%d of %d processes respond (NCCL %s, communicators: %d)", r.Responding, r.Processes, r.NCCL, r.Communicators)
	for i, l := range r.Behind {
		if i == maxLaggards {
			return fmt.Sprintf("%s; and %d more", text, len(r.Behind)-i)
		}
		text += fmt.Sprintf("; process %d at %s is behind: %s", l.PID, l.Host, l.Why)
	}
	return text
}

// maxLaggards bounds those that a line names.
const maxLaggards = 4
