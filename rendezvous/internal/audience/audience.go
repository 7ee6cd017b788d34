// Package audience tells people what happens to jobs, and writes the events of a job for programs.
package audience

import (
	"fmt"
	"io"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/process/asyncwriter"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Audience calls functions in order, in a goroutine of its own, so that no function delays the
// coordinator.
type Audience struct {
	to       Listeners
	messages *asyncwriter.Writer
	journal  *journal
}

// Listeners are the functions for people and programs from the coordinator's Config. Only Warn is
// required.
type Listeners struct {
	Observe func(job.Event, report.Decision)
	Joined  func(placement.Node)
	Note    func(string)
	Warn    func(error)
	// Journal gets a JSON line for each event of the only job.
	Journal io.Writer
}

// New returns an audience. The caller must call Close.
func New(to Listeners) *Audience {
	missed := func(n int) { to.Warn(fmt.Errorf("%d messages are not shown: the reader is too slow", n)) }
	return &Audience{to: to, messages: asyncwriter.New(missed), journal: newJournal(to.Journal, to.Warn)}
}

// Say tells people about an event in a cluster.
func (a *Audience) Say(text string) {
	if a.to.Note != nil {
		a.messages.Say(func() { a.to.Note(text) })
	}
}

// Warn tells people something that they should know.
func (a *Audience) Warn(err error) { a.messages.Say(func() { a.to.Warn(err) }) }

// Joined reports a node that has joined the only job.
func (a *Audience) Joined(n placement.Node) {
	if a.to.Joined != nil {
		a.messages.Say(func() { a.to.Joined(n) })
	}
}

// Decided reports a decision about the only job.
func (a *Audience) Decided(ev job.Event, d report.Decision) {
	if a.to.Observe != nil {
		a.messages.Say(func() { a.to.Observe(ev, d) })
	}
}

// Close waits, for a limited time, until everything is reported and written.
func (a *Audience) Close() {
	a.journal.close()
	a.messages.Finish(asyncwriter.Patience)
}
