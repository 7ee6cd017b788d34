// Package record has the measurements of one run of tools/bench: docs/performance/peers.json. From
// it tools/bench/plot makes the plots and tables of the documents.
package record

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"
)

// Version is the version of the file's format.
const Version = 1

// Record is one run, on one machine, of all launchers in turn.
type Record struct {
	FormatVersion int       `json:"format_version"`
	Began         time.Time `json:"began"`
	TookSeconds   float64   `json:"took_seconds"`
	Machine       Machine   `json:"machine"`
	// Peers are the launchers that were compared, golaunch included.
	Peers []Peer `json:"peers"`
	// Skipped are the launchers that were not compared, and why.
	Skipped  []Skipped `json:"skipped"`
	Sections []Section `json:"sections"`
	Series   []*Series `json:"series"`
}

// Machine is the machine of the run.
type Machine struct {
	CPU         string `json:"cpu"`
	Cores       int    `json:"cores"`
	MemoryBytes int64  `json:"memory_bytes"`
	Kernel      string `json:"kernel"`
	OS          string `json:"os"`
	// Load is the load average of one minute when the run began: how many other processes wanted a
	// core.
	Load float64 `json:"load"`
	// Stolen is the part of the time of all cores, from 0 to 1, that the hypervisor gave to others
	// during the run.
	Stolen float64 `json:"stolen"`
}

// Peer is a launcher with its version.
type Peer struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Skipped is a peer that was left out of all works, or of the named ones.
type Skipped struct {
	Peer   string `json:"peer"`
	Works  string `json:"works,omitempty"`
	Reason string `json:"reason"`
}

// Section is a part of the run: in each of its rounds every launcher has its turn.
type Section struct {
	Name        string  `json:"name"`
	Rounds      int     `json:"rounds"`
	TookSeconds float64 `json:"took_seconds"`
	// Load is the load average of one minute at its end; the run itself is part of it.
	Load float64 `json:"load"`
	// Renewed is when a later run has measured this section again, and no other.
	Renewed time.Time `json:"renewed,omitzero"`
}

// Series is one work of one peer, in the order of measurement.
type Series struct {
	Work string `json:"work"`
	Peer string `json:"peer"`
	// Command is the command that was run, without the directories of programs.
	Command string    `json:"command"`
	Samples []float64 `json:"samples"`
	// Failed counts the runs that have no sample; Failure is the reason of the first such run.
	Failed  int    `json:"failed"`
	Failure string `json:"failure,omitempty"`
}

// Of returns the series of a work and a peer; nil if there is none.
func (r *Record) Of(work, peer string) *Series {
	for _, s := range r.Series {
		if s.Work == work && s.Peer == peer {
			return s
		}
	}
	return nil
}

// Add returns the series of a work and a peer. It adds a new one if there is none.
func (r *Record) Add(work, peer, command string) *Series {
	s := r.Of(work, peer)
	if s == nil {
		s = &Series{Work: work, Peer: peer, Command: command, Samples: []float64{}}
		r.Series = append(r.Series, s)
	}
	return s
}

// Renew replaces the sections of a record, and their works, that a later run has measured again.
func (r *Record) Renew(by *Record) {
	for _, section := range by.Sections {
		section.Renewed = by.Began
		r.Sections = append(slices.DeleteFunc(r.Sections, func(old Section) bool { return old.Name == section.Name }), section)
	}
	r.Series = slices.DeleteFunc(r.Series, func(old *Series) bool {
		return slices.ContainsFunc(by.Series, func(s *Series) bool { return s.Work == old.Work })
	})
	r.Series = append(r.Series, by.Series...)
}

// Spread returns the lowest, the middle and the highest of one or more samples.
func Spread(samples []float64) (lowest, median, highest float64) {
	all := slices.Sorted(slices.Values(samples))
	n := len(all)
	return all[0], (all[(n-1)/2] + all[n/2]) / 2, all[n-1]
}

// Read reads a record.
func Read(file string) (*Record, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if r.FormatVersion != Version {
		return nil, fmt.Errorf("%s has format version %d, not %d: measure again with this version of tools/bench", file, r.FormatVersion, Version)
	}
	return &r, nil
}

// Write writes a record, with one series per line.
func (r *Record) Write(file string) error {
	text, err := r.text()
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644) //nolint:gosec // a document
}
