package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/process/asyncwriter"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
)

// Exit codes of golaunch itself, as in timeout(1) and docker-run(1).
const (
	ExitUsage   = 2
	ExitFailure = 125
)

// Console is the output of a verb. It records the end of the verb, so that a test can run a verb.
type Console struct {
	Stdout, Stderr io.Writer
	code           int
	// began is true once the verb runs. Any error before that is an error of usage.
	began bool
	// JSON is true if the verb was called with --json.
	JSON bool
	// unshown is the error of Show.
	unshown error
	// words writes to stderr in a goroutine, so that a reader that blocks cannot stop the verb.
	begun sync.Once
	words *asyncwriter.Writer
}

// Say prints a message.
func (s *Console) Say(text string) { s.Message("golaunch: "+text, jsonout.Words{Reason: text}) }

// Warn prints an error that does not end the verb.
func (s *Console) Warn(err error) {
	s.Message("golaunch: warning: "+err.Error(), jsonout.Words{Warning: err.Error()})
}

// Show prints a help text, or another text of golaunch itself, on stdout. Execute reports its
// error, because cobra's help functions return none.
func (s *Console) Show(text string) {
	s.began = true // so the error is not one of usage
	_, s.unshown = io.WriteString(s.Stdout, text)
}

// Message prints a message as text, or as JSON with --json.
func (s *Console) Message(text string, words jsonout.Words) {
	text += "\n"
	if s.JSON {
		text = string(words.Bytes())
	}
	s.Print(text)
}

// Print prints on stderr. It waits a limited time for the reader, so that no verb hangs because its
// output is not read.
func (s *Console) Print(text string) {
	s.begun.Do(func() {
		s.words = asyncwriter.New(func(missed int) {
			fmt.Fprintf(s.Stderr, "golaunch: warning: %d messages are not shown: the reader was too slow\n", missed)
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
