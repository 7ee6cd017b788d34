package top

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/units"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/internal/process/fold"
	"github.com/golaunch/golaunch/launcher/report"
)

const (
	// keptLines bounds the lines of a log that are kept, and longestLine bounds each line, in bytes.
	keptLines, longestLine = 2000, 4 << 10
	// tailedRanks bounds how many ranks' logs are followed at once.
	tailedRanks = 16
)

// tailing is the newest lines of a log. first is the number of the first.
type tailing struct {
	name  string
	first int
	lines []string
	// state says whether the log is being read, or why not.
	state string
}

// subject says whose log is followed.
type subject struct {
	job     string
	attempt int
	ranks   []report.Span
	name    string
	// prefix is true to write the ranks before each line, and to fold lines that several ranks have
	// in common.
	prefix bool
	// past is true for a finished attempt. Otherwise the log of the next attempt follows.
	past bool
}

// subject returns the ranks whose log belongs to a place: the ranks of a job or a node, or one
// rank.
func (p *Picture) subject(at place) (subject, bool) {
	ranks := p.ranks(at)
	j := p.Job(at.job)
	if j == nil && len(ranks) > 0 {
		j = p.Job(ranks[0].Job)
	}
	if j == nil {
		return subject{}, false
	}
	s := subject{job: j.ID, attempt: j.Attempt, name: "all ranks", prefix: j.JobStatus.Ranks != 1}
	if at.attempt > 0 {
		s.attempt, s.past = at.attempt-1, at.attempt-1 != j.Attempt
		s.name = fmt.Sprint("attempt ", s.attempt)
	}
	if ranks = slices.DeleteFunc(slices.Clone(ranks), func(r *Rank) bool { return r.Job != j.ID }); at.node == "" && len(ranks) <= tailedRanks {
		return s, true
	}
	return s.of(ranks), true
}

// of limits the subject to the worst ranks if there are too many ranks.
func (s subject) of(ranks []*Rank) subject {
	name := units.Plural(len(ranks), "rank")
	if len(ranks) > tailedRanks {
		name = fmt.Sprintf("the worst %d of %d ranks", tailedRanks, len(ranks))
		ranks = ranks[:tailedRanks]
	}
	if len(ranks) == 1 {
		name, s.prefix = fmt.Sprint("rank ", ranks[0].Rank.Rank), false
	}
	if s.past {
		name += " in " + s.name
	}
	s.name = name
	for _, r := range ranks {
		s.ranks = append(s.ranks, report.Span{From: r.Rank.Rank, To: r.Rank.Rank})
	}
	return s
}

// follower reads a log. One goroutine adds lines, and another shows them.
type follower struct {
	subject
	news func()

	mu sync.Mutex
	tailing
	// open holds unfinished lines, by rank and stream.
	open map[[2]int][]byte
	// folder holds lines that wait for equal lines of other ranks, until timer fires; nil with one
	// rank.
	folder *fold.Folder
	timer  *time.Timer
	// world is the number of ranks of the attempt, if known.
	world int
}

func newFollower(of subject, news func()) *follower {
	f := &follower{subject: of, news: news, open: map[[2]int][]byte{}}
	if of.prefix {
		f.folder = fold.New(0, nil)
		f.timer = time.AfterFunc(time.Hour, f.tick)
		f.timer.Stop()
	}
	return f
}

// follow reads until ctx ends or the log ends.
func (f *follower) follow(ctx context.Context, sources []view.Source) {
	f.say("live")
	defer f.flush()
	filter := report.LogFilter{Ranks: f.ranks, Attempt: f.attempt, Follow: true}
	var err error
	for _, source := range sources {
		if err = f.read(source.Logs(ctx, f.job, filter)); err == nil {
			break
		}
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		f.say("cannot be read: " + err.Error())
	default:
		f.say("it has ended")
	}
}

func (f *follower) read(chunks func(func(report.LogChunk, error) bool)) error {
	for c, err := range chunks {
		if err != nil {
			return err
		}
		f.take(c)
		f.news()
	}
	return nil
}

func (f *follower) say(state string) {
	f.mu.Lock()
	f.state = state
	f.mu.Unlock()
	f.news()
}

// take adds the lines of a chunk. An unfinished line waits for its end.
func (f *follower) take(c report.LogChunk) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.Missing != "" {
		f.add("missing: " + c.Missing)
		return
	}
	of := [2]int{c.Rank, c.Stream}
	data := append(f.open[of], c.Data...)
	for {
		line, rest, ended := bytes.Cut(data, []byte{'\n'})
		if !ended {
			f.open[of] = bytes.Clone(data[max(0, len(data)-longestLine):])
			return
		}
		f.line(c, lastPart(string(line)))
		data = rest
	}
}

// line adds a line of a rank. The line waits a moment for the same line of other ranks.
func (f *follower) line(c report.LogChunk, text string) {
	if f.folder == nil {
		f.add(clean(text))
		return
	}
	if c.WorldSize > 0 && c.WorldSize != f.world {
		f.world = c.WorldSize
		f.groups(f.folder.Expect(f.expected()))
	}
	now := time.Now()
	f.groups(f.folder.Add(fold.Line{Rank: c.Rank, Stream: fold.Stream(c.Stream), Text: []byte(text), At: now}))
	f.arm(now)
}

// expected are the ranks with output.
func (f *follower) expected() fold.Ranks {
	if len(f.ranks) == 0 {
		return fold.World(f.world)
	}
	var ranks []int
	for _, s := range f.ranks {
		ranks = append(ranks, s.From)
	}
	slices.Sort(ranks)
	return fold.Of(ranks...)
}

func (f *follower) groups(all []fold.Group) {
	for _, g := range all {
		f.add("[" + g.Ranks.String() + "] " + clean(g.Text()))
	}
}

func (f *follower) arm(now time.Time) {
	if due, some := f.folder.Due(); some {
		f.timer.Reset(max(0, due.Sub(now)))
	}
}

// tick shows the lines that have waited long enough.
func (f *follower) tick() {
	f.mu.Lock()
	now := time.Now()
	f.groups(f.folder.Tick(now))
	f.arm(now)
	f.mu.Unlock()
	f.news()
}

// flush shows all waiting lines at the end.
func (f *follower) flush() {
	if f.folder == nil {
		return
	}
	f.mu.Lock()
	f.timer.Stop()
	f.groups(f.folder.Flush())
	f.mu.Unlock()
	f.news()
}

func (f *follower) add(line string) {
	f.lines = append(f.lines, line)
	if over := len(f.lines) - keptLines; over > 0 {
		f.first += over
		f.lines = f.lines[over:]
	}
}

// seen returns the lines so far.
func (f *follower) seen() *tailing {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.tailing
	t.lines = slices.Clone(t.lines)
	t.name = fmt.Sprintf("log of %s, %s", f.job, f.subject.name)
	return &t
}

// logLines shows the newest lines of the log, or those that the user scrolled to.
func (s *screen) logLines(l *look, height int) (string, []string) {
	if s.log.name == "" {
		return "log", []string{l.paint(dim, cut("  press l for the log of what is chosen", s.width, l.ellipsis))}
	}
	t := s.log
	from := max(0, len(t.lines)-height)
	where := ""
	if s.logTop >= 0 {
		from = min(max(0, s.logTop-t.first), from)
		where = ", press G for the newest"
	}
	lines := slices.Clone(t.lines[from:min(len(t.lines), from+height)])
	for i := range lines {
		lines[i] = l.logLine(cut(lines[i], s.width, l.ellipsis))
	}
	if len(lines) == 0 {
		lines = append(lines, l.paint(dim, "  nothing was written"))
	}
	if t.state != "" {
		where = ": " + t.state + where
	}
	return t.name + where, lines
}

func (l *look) logLine(line string) string {
	if who, rest, found := strings.Cut(line, "] "); found && strings.HasPrefix(who, "[r") {
		return l.paint(dim, who+"] ") + rest
	}
	return line
}
