// Package jsonout writes all JSON that golaunch has for programs, as docs/json.md describes it.
package jsonout

import (
	"bytes"
	"encoding/json"
	"io"
	"time"
)

// Version is the version of the contract. It does not change when a field is added. It grows when a
// field is removed, or changes its name or meaning.
const Version = 1

// Header is embedded in every object, so that each has the version.
type Header struct {
	Format int `json:"format_version"`
}

func (h *Header) stamp() { h.Format = Version }

// Record is an object with a [Header]. Only records can be written.
type Record interface{ stamp() }

// Line returns a record as one line, for output that has several.
func Line(r Record) ([]byte, error) {
	r.stamp()
	text, err := Marshal(r)
	return append(text, '\n'), err
}

// Print writes the only record that a command prints.
func Print(w io.Writer, r Record) error {
	text, err := Line(r)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return err
	}
	_, err = w.Write(out.Bytes())
	return err
}

// Words is a line of golaunch's own messages on standard error: the time, and one of the other
// fields.
type Words struct {
	Header
	Time time.Time `json:"time"`
	// Reason is a decision, or something that golaunch does now. Warning is a problem that ended
	// nothing.
	Reason  string `json:"reason,omitempty"`
	Warning string `json:"warning,omitempty"`
	// Result is how a job ended.
	Result any `json:"result,omitempty"`
	// Error is why a command failed; nothing follows it.
	Error *Error `json:"error,omitempty"`
}

// Error is why a command has failed.
type Error struct {
	Kind Kind `json:"kind"`
	// Code is the exit code.
	Code int    `json:"code"`
	Verb string `json:"verb"`
	// Message is for people.
	Message string `json:"message"`
}

// Kind is the kind of error, for programs.
type Kind string

const (
	// Usage means that a command line or a variable makes no sense.
	Usage Kind = "usage"
	// NotThere means that the cluster does not have the job or node.
	NotThere Kind = "not_there"
	// NoCoordinator means that no coordinator was named, and none is on this machine.
	NoCoordinator Kind = "no_coordinator"
	// Failure means anything else.
	Failure Kind = "failure"
)

// Event is one event of a job, in events.jsonl.
type Event struct {
	Header
	Time   time.Time `json:"time"`
	Event  string    `json:"event"`
	Reason string    `json:"reason,omitempty"`
	// Detail has the fields of the event under their names.
	Detail any `json:"detail"`
}

// Submitted is the record that a command prints about a job that continues by itself.
type Submitted struct {
	Header
	Job string `json:"job"`
}

// Bytes returns the words as a line.
func (w Words) Bytes() []byte {
	if w.Time.IsZero() {
		w.Time = time.Now()
	}
	text, err := Line(&w)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return text
}
