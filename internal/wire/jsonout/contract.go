// Package jsonout writes what programs read of golaunch: all its JSON, as docs/json.md has it.
package jsonout

import (
	"bytes"
	"encoding/json"
	"io"
	"time"
)

// Version is that of the contract. It stays when fields are added, and grows when one goes, or changes its name or meaning.
const Version = 1

// Header is embedded by whatever is written: each object has the version.
type Header struct {
	Format int `json:"format_version"`
}

func (h *Header) stamp() { h.Format = Version }

// Record is an object with a [Header]; there is no other way to write one.
type Record interface{ stamp() }

// Line is a record in one line, for what is written one after the other.
func Line(r Record) ([]byte, error) {
	r.stamp()
	text, err := Marshal(r)
	return append(text, '\n'), err
}

// Print writes the one record that a command prints.
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

// Words are golaunch's own, for which it has the standard error: the time, and one of the others.
type Words struct {
	Header
	Time time.Time `json:"time"`
	// Reason is what was decided, or is going on, and Warning what went wrong without ending anything.
	Reason  string `json:"reason,omitempty"`
	Warning string `json:"warning,omitempty"`
	// Result is how a job ended.
	Result any `json:"result,omitempty"`
	// Error is what a command has failed of; nothing follows it.
	Error *Error `json:"error,omitempty"`
}

// Error is why a command did not do what it was asked for.
type Error struct {
	Kind Kind `json:"kind"`
	// Code is the exit code.
	Code int    `json:"code"`
	Verb string `json:"verb"`
	// Message is for people.
	Message string `json:"message"`
}

// Kind is what kind of error it is, for programs.
type Kind string

const (
	// Usage is a command line, or a variable, that means nothing.
	Usage Kind = "usage"
	// NotThere is a job or a node that the cluster does not have.
	NotThere Kind = "not_there"
	// NoCoordinator is none on this machine, when none was named.
	NoCoordinator Kind = "no_coordinator"
	// Failure is anything else.
	Failure Kind = "failure"
)

// Event is one event of a job, in events.jsonl.
type Event struct {
	Header
	Time   time.Time `json:"time"`
	Event  string    `json:"event"`
	Reason string    `json:"reason,omitempty"`
	// Detail is the event, under the names of its fields.
	Detail any `json:"detail"`
}

// Submitted is what is printed of a job that goes on by itself.
type Submitted struct {
	Header
	Job string `json:"job"`
}

// Bytes are the words as a line.
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
