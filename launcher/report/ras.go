package report

import "fmt"

// RAS is the answer of the RAS service of a job's NCCL. The service runs in each rank, and one rank
// answers for all.
type RAS struct {
	// NCCL is the version of NCCL in the rank that answered. If no rank answered, it is empty and
	// Why says why.
	NCCL string `json:"nccl,omitempty"`
	Why  string `json:"why,omitempty"`
	// Communicators counts the job's communicators, Processes their processes, and Responding the
	// processes that have answered.
	Communicators int `json:"communicators"`
	Processes     int `json:"processes"`
	Responding    int `json:"responding"`
	// Behind are the processes for which other processes wait, 16 at most.
	Behind []Laggard `json:"behind"`
}

// Laggard is a process that has started fewer collectives than other processes, or does not answer
// them.
type Laggard struct {
	// Host is an IP address.
	Host string `json:"host"`
	PID  int    `json:"pid"`
	Why  string `json:"why"`
}

// maxLaggards bounds the laggards that a line names.
const maxLaggards = 4

// String returns the answer in one line.
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
