package launcher

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/launcher/report"
)

// TorchOutput is what torchrun does with the output of ranks
// (torch/distributed/elastic/multiprocessing/api.py). The files have torchrun's names beside
// golaunch's: <LogDir>/<id>_<random>/attempt_<n>/<local rank>/{stdout.log,stderr.log,error.json},
// in a directory for each node and run.
type TorchOutput struct {
	// Redirects go to files alone. Tee goes to files and, with Prefix before each line, to the
	// console. Other streams are shown as they are, and unlike torchrun's are in files too. The
	// keys are local ranks, -1 for all without an entry; the values are torchrun's: 0 none, 1
	// stdout, 2 stderr, 3 both.
	Redirects map[int]int `json:"Redirects"`
	Tee       map[int]int `json:"Tee"`
	// LocalRanks are shown; all when empty.
	LocalRanks []int `json:"LocalRanks"`
	// Prefix may have ${role_name}, ${local_rank}, ${rank} and ${hostname};
	// "[${role_name}${local_rank}]:" when empty.
	Prefix string `json:"Prefix"`
	// Filters are texts, for stdout and for stderr: lines of Tee that contain one of them are also
	// in <LogDir>/<id>_<random>/attempt_<n>/filtered_stdout.log and filtered_stderr.log.
	Filters [2][]string `json:"Filters"`
	// ErrorFile, if set, gets the error file of the rank that failed first, if it ran on this node,
	// with its exit code as errorCode: the TORCHELASTIC_ERROR_FILE of torchrun's caller.
	ErrorFile string `json:"ErrorFile"`
}

// streams is a Redirects or a Tee.
type streams map[int]int

// everyRank stands for the local ranks without an entry.
const everyRank = -1

func (s streams) of(localRank int) console.Stream {
	if streams, ok := s[localRank]; ok {
		return console.Stream(streams)
	}
	return console.Stream(s[everyRank])
}

func (s streams) validate(name string) error {
	for rank, streams := range s {
		if rank < everyRank || streams < 0 || streams > 3 {
			return fmt.Errorf("%s %d:%d: a local rank, and 0 (none), 1 (stdout), 2 (stderr) or 3 (both)", name, rank, streams)
		}
	}
	return nil
}

func (o Output) validateFold() error {
	switch o.Fold {
	case "", "auto", "on", "off":
		return nil
	}
	return fmt.Errorf("fold %q: auto, on or off", o.Fold)
}

func (t *TorchOutput) validate() error {
	if t == nil {
		return nil
	}
	if err := streams(t.Redirects).validate("redirects"); err != nil {
		return err
	}
	return streams(t.Tee).validate("tee")
}

// outputOf says how a rank's output is kept, and shown on a console unless that is nil.
func (j Job) outputOf(console *console.Console, warn func(error)) func(agent.Speaker) logs.RankOptions {
	return func(s agent.Speaker) logs.RankOptions {
		o := logs.RankOptions{Node: s.Node, Rank: s.Rank, Attempt: s.Attempt, Limit: j.Output.LogLimit, Warn: warn, Alone: s.WorldSize == 1}
		if j.shown(s.Rank) {
			o.Console = console
		}
		switch {
		case j.Output.Torch != nil:
			j.torch(s, &o)
		case j.Output.prefixed(s.WorldSize):
			o.Prefix = fmt.Sprintf("[r%d %s] ", s.Rank, s.Node)
		}
		return o
	}
}

// torch does it as torchrun would.
func (j Job) torch(s agent.Speaker, o *logs.RankOptions) {
	tee := streams(j.Output.Torch.Tee).of(s.LocalRank)
	o.Bare = ^tee
	o.Hidden = streams(j.Output.Torch.Redirects).of(s.LocalRank) &^ tee
	if len(j.Output.Torch.LocalRanks) > 0 && !slices.Contains(j.Output.Torch.LocalRanks, s.LocalRank) {
		o.Console = nil
	}
	o.Alias = fmt.Sprintf("attempt_%d/%d", s.Attempt, s.LocalRank)
	o.Prefix = j.torchPrefix(s)
	o.Filters = map[console.Stream][]string{console.Stdout: j.Output.Torch.Filters[0], console.Stderr: j.Output.Torch.Filters[1]}
}

// torchPrefix fills in the template as Python's string.Template.safe_substitute does: an unknown
// macro stays.
func (j Job) torchPrefix(s agent.Speaker) string {
	template := j.Output.Torch.Prefix
	if template == "" {
		template = "[${role_name}${local_rank}]:"
	}
	return os.Expand(template, func(macro string) string {
		switch macro {
		case "role_name":
			return j.Ranks.Role
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

// hostname is this machine's name, or the node's if it has none.
func hostname(node string) string {
	if name, err := os.Hostname(); err == nil {
		return name
	}
	return node
}

// dirName is the name of the job's log directory. torchrun's IDs are not unique: all jobs of a user
// may be "none".
func (j Job) dirName(id string) string {
	if j.Output.Torch == nil {
		return id
	}
	return id + "_" + strings.ToLower(rand.Text()[:8])
}

// writeErrorFile writes the error file of the rank that failed first to the one of torchrun's
// caller.
func (l *localRun) writeErrorFile(cause *report.Failure) error {
	t := l.job.Output.Torch
	if t == nil || t.ErrorFile == "" || cause == nil || cause.Rank < 0 || l.files.Dir() == nil {
		return nil
	}
	text, err := l.files.Dir().ErrorFile(cause.Attempt, cause.Rank)
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

// foldAbove is how many ranks are shown line by line if Fold is "auto".
const foldAbove = 8

// console is where the output goes.
func (o Output) console() *console.Console {
	c := console.New(o.Stdout, o.Stderr)
	switch {
	case o.Torch != nil:
	case o.Fold == "on":
		c.Fold(1)
	case o.Fold != "off" && c.IsTerminal():
		c.Fold(foldAbove)
	}
	return c
}
