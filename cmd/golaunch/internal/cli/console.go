package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/process/asyncwriter"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
)

// Exit codes of golaunch's own, beside the root cause's: those of timeout(1) and docker-run(1).
const (
	ExitUsage   = 2
	ExitFailure = 125
)

// streams are the process's own, so that a verb can be run in a test, and the exit code of the verb that has run.
type Console struct {
	Stdout, Stderr io.Writer
	code           int
	// began says that a verb has run: what failed before is how it was called.
	began bool
	// json says that the verb was called with --json.
	JSON bool
	// words are for stderr.
	begun sync.Once
	words *asyncwriter.Speaker
}

// say prints what a person may want to know.
func (s *Console) Say(text string) { s.Message("golaunch: "+text, jsonout.Words{Reason: text}) }

// warn prints what went wrong without ending the verb.
func (s *Console) Warn(err error) {
	s.Message("golaunch: warning: "+err.Error(), jsonout.Words{Warning: err.Error()})
}

// tell prints words as they were asked for.
func (s *Console) Message(text string, words jsonout.Words) {
	text += "\n"
	if s.JSON {
		text = string(words.Bytes())
	}
	s.Print(text)
}

// print prints on stderr, and waits for who reads that for a limited time: no verb goes on, or
// ends, only when somebody reads.
func (s *Console) Print(text string) {
	s.begun.Do(func() {
		s.words = asyncwriter.New(func(missed int) {
			fmt.Fprintf(s.Stderr, "golaunch: warning: %d messages are not shown: nobody has read those before\n", missed)
		})
	})
	printed := make(chan struct{})
	s.words.Say(func() {
		fmt.Fprint(s.Stderr, text)
		close(printed)
	})
	late := time.NewTimer(asyncwriter.Patience)
	defer late.Stop()
	select {
	case <-printed:
	case <-late.C:
	}
}
