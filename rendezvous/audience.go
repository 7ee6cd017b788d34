package rendezvous

import (
	"fmt"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/process/asyncwriter"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous/internal/journal"
)

// audience has what the callbacks of a [Config] tell people, in order and without delaying the
// coordinator, and the journal of the only job for programs.
type audience struct {
	cfg      Config
	messages *asyncwriter.Writer
	journal  *journal.Journal
}

func newAudience(cfg Config) audience {
	missed := func(n int) { cfg.Warn(fmt.Errorf("%d messages are not shown: the reader is too slow", n)) }
	return audience{cfg: cfg, messages: asyncwriter.New(missed), journal: journal.New(cfg.Journal, cfg.Warn)}
}

func (a *audience) note(text string) {
	if a.cfg.Note != nil {
		a.messages.Say(func() { a.cfg.Note(text) })
	}
}

func (a *audience) warn(err error) { a.messages.Say(func() { a.cfg.Warn(err) }) }

func (a *audience) joined(n placement.Node) {
	if a.cfg.Joined != nil {
		a.messages.Say(func() { a.cfg.Joined(n) })
	}
}

func (a *audience) observe(ev job.Event, d report.Decision) {
	if a.cfg.Observe != nil {
		a.messages.Say(func() { a.cfg.Observe(ev, d) })
	}
}

func (a *audience) close() {
	a.journal.Close()
	a.messages.Finish(asyncwriter.Patience)
}
