package top

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher"
)

const (
	// keptLines bounds the lines of a log that are kept, and longestLine each of them, in bytes.
	keptLines, longestLine = 2000, 4 << 10
	// tailedRanks bounds how many ranks' logs are followed at once.
	tailedRanks = 16
)

// tailing is a log as it was read so far: the newest lines, of which the first has a number.
type tailing struct {
	name  string
	first int
	lines []string
	// state says what goes on beside the lines: that it is read, or why it is not any more.
	state string
}

// subject is whose log is followed.
type subject struct {
	job     string
	attempt int
	ranks   []launcher.Span
	name    string
	// prefix puts the rank before each line.
	prefix bool
}

// subject is whose log somebody wants who looks at a place: a rank's, a node's, or a job's.
func (p *Picture) subject(at place) (subject, bool) {
	ranks := p.ranks(at)
	j := p.jobs[at.job]
	if j == nil && len(ranks) > 0 {
		j = p.jobs[ranks[0].Job]
	}
	if j == nil {
		return subject{}, false
	}
	s := subject{job: j.ID, attempt: j.Attempt, name: "all ranks", prefix: j.JobStatus.Ranks != 1}
	if ranks = slices.DeleteFunc(slices.Clone(ranks), func(r *Rank) bool { return r.Job != j.ID }); at.node == "" && len(ranks) <= tailedRanks {
		return s, true
	}
	return s.of(ranks), true
}

// of limits it to some ranks, the worst if they are many.
func (s subject) of(ranks []*Rank) subject {
	s.name = plural(len(ranks), "rank")
	if len(ranks) > tailedRanks {
		s.name = fmt.Sprintf("the worst %d of %d ranks", tailedRanks, len(ranks))
		ranks = ranks[:tailedRanks]
	}
	if len(ranks) == 1 {
		s.name, s.prefix = fmt.Sprint("rank ", ranks[0].Rank.Rank), false
	}
	for _, r := range ranks {
		s.ranks = append(s.ranks, launcher.Span{From: r.Rank.Rank, To: r.Rank.Rank})
	}
	return s
}

// follower reads a log. It is read by one goroutine and seen by another.
type follower struct {
	subject
	news func()

	mu sync.Mutex
	tailing
	open map[[2]int][]byte
}

// follow reads until ctx ends, or there is no more.
func (f *follower) follow(ctx context.Context, sources []view.Source) {
	f.say("is read")
	filter := launcher.LogFilter{Ranks: f.ranks, Attempt: f.attempt, Follow: true}
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
		f.say("ends here")
	}
}

func (f *follower) read(chunks func(func(launcher.LogChunk, error) bool)) error {
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

// take adds the lines of a piece. What a line has not ended with waits for the rest of it.
func (f *follower) take(c launcher.LogChunk) {
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
		f.add(f.before(c.Rank) + clean(lastPart(string(line))))
		data = rest
	}
}

func (f *follower) before(rank int) string {
	if !f.prefix {
		return ""
	}
	return fmt.Sprintf("[r%d] ", rank)
}

func (f *follower) add(line string) {
	f.lines = append(f.lines, line)
	if over := len(f.lines) - keptLines; over > 0 {
		f.first += over
		f.lines = f.lines[over:]
	}
}

// seen is what there is until now.
func (f *follower) seen() *tailing {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.tailing
	t.lines = slices.Clone(t.lines)
	t.name = fmt.Sprintf("log of %s, %s", f.job, f.subject.name)
	return &t
}

// logLines are the newest lines of the log that is followed, or those where somebody reads.
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
	return t.name + " " + cmp.Or(t.state, "") + where, lines
}

func (l *look) logLine(line string) string {
	if rank, rest, found := strings.Cut(line, "] "); found && strings.HasPrefix(rank, "[r") {
		return l.paint(dim, rank+"] ") + rest
	}
	return line
}
