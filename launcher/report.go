package launcher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/logs"
)

// observe tells what was decided: to the job's observer, or in words.
func (h *here) observe(d Decision) {
	switch {
	case h.job.Observe != nil:
		h.job.Observe(d)
	case h.job.Quiet || d.Reason == "":
	case h.job.JSON:
		h.words(struct {
			Time   time.Time `json:"time"`
			Reason string    `json:"reason"`
		}{d.At, d.Reason})
	default:
		h.narrator.tell(d)
	}
}

// words prints one JSON object on a line.
func (h *here) words(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		text = fmt.Appendf(nil, "{%q:%q}", "error", err)
	}
	if err := h.console.Relay(bytes.NewReader(append(text, '\n')), logs.Stderr); err != nil {
		h.warn(err)
	}
}

// report says how the job ended.
func (h *here) report(r Result) {
	if h.job.JSON {
		h.words(struct {
			Result Result `json:"result"`
		}{r})
		return
	}
	h.console.Say("%s", Report(r, h.dir.Path()))
}

// Report is the end of a job in words. After a failure it has when the first one over all nodes was, the rank's traceback or its
// last words, and where the logs are.
func Report(r Result, logs string) string {
	if r.Code == 0 {
		return r.Reason
	}
	var b strings.Builder
	fmt.Fprintln(&b, r.Reason)
	if f := r.Cause; f != nil {
		fmt.Fprintf(&b, "  first failure  %s, attempt %d, at %s\n", f.Why, f.Attempt, f.At.Format("2006-01-02 15:04:05.000 MST"))
		switch {
		case f.Traceback != "":
			fmt.Fprintf(&b, "  traceback\n%s\n", indent(f.Traceback))
		case f.Tail != "":
			fmt.Fprintf(&b, "  last words\n%s\n", indent(f.Tail))
		}
	}
	fmt.Fprintf(&b, "  exit code      %d\n", r.Code)
	if logs != "" {
		fmt.Fprintf(&b, "  logs           %s\n", logs)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}
