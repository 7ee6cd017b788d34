package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/alert"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// Log is the output of ranks in a [Report].
type Log struct {
	lines []line
	words string
}

// Report writes the page of a job as one file that needs no server: its data, scripts and styles
// are in it, and a browser loads nothing else. Version is the version of this golaunch. If there is
// no such job, the error is [launcher.ErrNotThere].
func Report(w io.Writer, s *view.State, job string, log Log, version string) error {
	if s.Job(job) == nil {
		return fmt.Errorf("%w: no job %q; golaunch jobs --all lists them", launcher.ErrNotThere, job)
	}
	data, err := json.Marshal(saved(s, job, log, version))
	if err != nil {
		return fmt.Errorf("cannot write what is known of job %s as JSON: %w", job, err)
	}
	script, style := bundle(), file("style.css")
	rules := fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'", hash(script), hash(style))
	page := replace(string(file("index.html")),
		`<link rel="icon" href="/icon.svg">`, `<meta http-equiv="Content-Security-Policy" content="`+rules+`">`+"\n"+
			`<link rel="icon" href="data:image/svg+xml;base64,`+base64.StdEncoding.EncodeToString(file("icon.svg"))+`">`,
		`<link rel="stylesheet" href="/style.css">`, "<style>"+string(style)+"</style>",
		`<script type="module" src="/app.js"></script>`, `<script type="application/json" id="saved">`+string(data)+"</script>\n"+
			`<script type="module">`+string(script)+"</script>")
	_, err = io.WriteString(w, page)
	return err
}

// saved is the data that the page of a report reads.
func saved(s *view.State, job string, log Log, version string) any {
	s = s.Past()
	p := newParts(query{"job", job, "step_time"}, alert.NewPicture(s))
	j := s.Job(job)
	if j.Phase != "running" { // the model looks for stragglers only in running jobs
		p.findings(view.Past(j.JobStatus.Ranks, j.Ranks, s.At), s.At)
	}
	f := newFeed(Options{Version: version})
	f.state, f.good = s, s.At
	p.add("head", f.head())
	heats := map[string]heat{}
	for _, meter := range slices.Sorted(maps.Keys(meters)) {
		heats[meter] = newHeat(j.Ranks, meter)
	}
	return struct {
		Stamp string          `json:"stamp"`
		Parts parts           `json:"parts"`
		Heats map[string]heat `json:"heats"`
		Log   struct {
			Lines []line `json:"lines"`
			Words string `json:"words"`
		} `json:"log"`
	}{
		Stamp: fmt.Sprintf("Written at %s by golaunch %s, from %s.", s.At.UTC().Format(time.RFC3339), version, text(s.Source, maxName)),
		Parts: p, Heats: heats, Log: struct {
			Lines []line `json:"lines"`
			Words string `json:"words"`
		}{append([]line{}, log.lines...), log.words},
	}
}

// replace replaces each text. The page must contain all of these texts.
func replace(page string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		before, after, found := strings.Cut(page, pairs[i])
		if !found {
			panic("index.html has no " + pairs[i])
		}
		page = before + pairs[i+1] + after
	}
	return page
}

// bundle joins all modules without their imports and exports. A name means the same in all modules.
func bundle() []byte {
	var b bytes.Buffer
	for _, name := range modules {
		for l := range bytes.Lines(file(name)) {
			if !bytes.HasPrefix(l, []byte("import ")) {
				b.Write(bytes.TrimPrefix(l, []byte("export ")))
			}
		}
	}
	return b.Bytes()
}

func hash(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Bounds of the log of a report.
const (
	reportLines = 500
	reportBytes = 256 << 20
)

// ReadLog reads the newest lines of the ranks that matter most: rank 0, and the rank that failed.
// It reads until ctx ends or a limit is reached, and reports which output it has omitted.
func ReadLog(ctx context.Context, source view.Source, j *view.Job) Log {
	ranks := []report.Span{{From: 0, To: 0}}
	if r := j.Result; r != nil && r.Cause != nil && r.Cause.Rank > 0 {
		ranks = append(ranks, report.Span{From: r.Cause.Rank, To: r.Cause.Rank})
	}
	t := newTail(reportLines)
	size, cut := 0, false
	t.read(func(yield func(report.LogChunk, error) bool) {
		for c, err := range source.Logs(ctx, j.ID, report.LogFilter{Ranks: ranks, Attempt: -1}) {
			if size += len(c.Data); size > reportBytes || ctx.Err() != nil {
				cut = true
				return
			}
			if !yield(c, err) {
				return
			}
		}
	})
	b := t.take()
	return Log{b.Lines, logWords(ranks, b, cut)}
}

// logWords says which lines of a log are in the report.
func logWords(ranks []report.Span, b batch, cut bool) string {
	who := "rank 0"
	if len(ranks) > 1 {
		who = fmt.Sprintf("ranks 0 and %d", ranks[1].From)
	}
	switch {
	case b.Error != "":
		return fmt.Sprintf("The output of %s could not be read: %s.", who, b.Error)
	case cut:
		return fmt.Sprintf("The output of %s is too long to be read for a report; this is a part of it.", who)
	case len(b.Lines) == 0:
		return fmt.Sprintf("The %s wrote nothing, or its node is gone.", who)
	case b.Skipped > 0:
		return fmt.Sprintf("The last %d lines of %s; %d more came before.", len(b.Lines), who, b.Skipped)
	}
	return fmt.Sprintf("All %d lines of %s.", len(b.Lines), who)
}
