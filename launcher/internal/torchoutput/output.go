// Package torchoutput keeps and shows the output of ranks as torchrun does.
package torchoutput

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/launcher/report"
)

// Output has the fields of launcher.TorchOutput.
type Output struct {
	Redirects  map[int]int
	Tee        map[int]int
	LocalRanks []int
	Prefix     string
	Filters    [2][]string
	ErrorFile  string
}

// streams is the value of Redirects or Tee: the streams of each local rank.
type streams map[int]int

// EveryRank is the key for all local ranks that have no entry of their own.
const EveryRank = -1

func (s streams) of(localRank int) console.Stream {
	if streams, ok := s[localRank]; ok {
		return console.Stream(streams)
	}
	return console.Stream(s[EveryRank])
}

func (s streams) validate(name string) error {
	for rank, streams := range s {
		if rank < EveryRank || streams < 0 || streams > 3 {
			return fmt.Errorf("%s %d:%d: a local rank, and 0 (none), 1 (stdout), 2 (stderr) or 3 (both)", name, rank, streams)
		}
	}
	return nil
}

// Validate refuses streams that torchrun does not know. Nil is valid.
func (t *Output) Validate() error {
	if t == nil {
		return nil
	}
	if err := streams(t.Redirects).validate("redirects"); err != nil {
		return err
	}
	return streams(t.Tee).validate("tee")
}

// Apply sets the options of a rank's output in o, so that golaunch keeps and shows the output as
// torchrun would. role is the name of the rank's role.
func (t *Output) Apply(s agent.Speaker, role string, o *logs.RankOptions) {
	tee := streams(t.Tee).of(s.LocalRank)
	o.Bare = ^tee
	o.Hidden = streams(t.Redirects).of(s.LocalRank) &^ tee
	if len(t.LocalRanks) > 0 && !slices.Contains(t.LocalRanks, s.LocalRank) {
		o.Console = nil
	}
	o.Alias = fmt.Sprintf("attempt_%d/%d", s.Attempt, s.LocalRank)
	o.Prefix = t.prefix(s, role)
	o.Filters = map[console.Stream][]string{console.Stdout: t.Filters[0], console.Stderr: t.Filters[1]}
}

// prefix fills in the template as Python's string.Template.safe_substitute does: an unknown
// macro stays.
func (t *Output) prefix(s agent.Speaker, role string) string {
	template := t.Prefix
	if template == "" {
		template = "[${role_name}${local_rank}]:"
	}
	return os.Expand(template, func(macro string) string {
		switch macro {
		case "role_name":
			return role
		case "local_rank":
			return strconv.Itoa(s.LocalRank)
		case "rank":
			return strconv.Itoa(s.Rank)
		case "hostname":
			return hostname(s.Node)
		case "$":
			return "$"
		}
		return "${" + macro + "}"
	})
}

// hostname returns this machine's name, or the node's name if the machine has none.
func hostname(node string) string {
	if name, err := os.Hostname(); err == nil {
		return name
	}
	return node
}

// WriteErrorFile copies the error file of the rank that failed first, from the job's directory, to
// the error file of torchrun's caller.
func (t *Output) WriteErrorFile(dir *logs.Dir, cause *report.Failure) error {
	if t == nil || t.ErrorFile == "" || cause == nil || cause.Rank < 0 || dir == nil {
		return nil
	}
	text, err := dir.ErrorFile(cause.Attempt, cause.Rank)
	if errors.Is(err, fs.ErrNotExist) { // the rank ran elsewhere, or died before it could write
		return nil
	}
	var file map[string]any
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if message, ok := file["message"].(map[string]any); ok {
		message["errorCode"] = cause.Exit.Code
		text, err = json.Marshal(file)
	}
	if err == nil {
		err = safefile.Write(t.ErrorFile, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("hand on the error of rank %d to TORCHELASTIC_ERROR_FILE: %w", cause.Rank, err)
	}
	return nil
}
