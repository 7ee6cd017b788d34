package console

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/process/fold"
)

// Fold shows a line that several ranks print only once, with these ranks; see package fold. It
// begins when more than above ranks are shown with a prefix. It must be called before anything is
// shown. Log files have all lines.
func (c *Console) Fold(above int) {
	c.folding = &folding{console: c, above: above, folder: fold.New(0, nil), open: map[int]int{}, seen: map[int]bool{}}
	c.folding.timer = time.AfterFunc(time.Hour, c.folding.tick)
	c.folding.timer.Stop()
}

// IsTerminal reports whether ranks' stdout goes to a terminal.
func (c *Console) IsTerminal() bool { return c.out.sink.tty }

// RankStarts must be called before a rank's first line, so that folding waits for the rank.
func (c *Console) RankStarts(rank int) { c.folding.rankStarts(rank) }

// RankEnds must be called once for each RankStarts, after the rank's last line.
func (c *Console) RankEnds(rank int) { c.folding.rankEnds(rank) }

// folding folds the lines of a console. It shows groups under its lock, so a splitter may wait
// until the reader takes another splitter's lines. The methods of a nil folding do nothing.
type folding struct {
	console *Console
	above   int

	mu     sync.Mutex
	folder *fold.Folder
	timer  *time.Timer
	// open has, for each rank, the number of calls of RankStarts less the number of calls of
	// RankEnds. seen has all ranks that were ever shown.
	open map[int]int
	seen map[int]bool
}

func (f *folding) rankStarts(rank int) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open[rank]++
	f.seen[rank] = true
	f.expectOpen()
}

func (f *folding) rankEnds(rank int) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[rank]--; f.open[rank] <= 0 {
		delete(f.open, rank)
	}
	f.expectOpen()
}

func (f *folding) expectOpen() {
	f.show(f.folder.Expect(fold.Of(slices.Collect(maps.Keys(f.open))...)), nil)
}

// expectWorld does what RankStarts does, for all ranks of a job.
func (f *folding) expectWorld(size int) {
	if f == nil || size == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[size-1] > 0 && len(f.open) == size {
		return
	}
	clear(f.open)
	for rank := range size {
		f.open[rank] = 1
	}
	f.show(f.folder.Expect(fold.World(size)), nil)
}

// add takes lines of a rank, or returns false if the caller must show them as they are.
func (f *folding) add(s *Splitter, lines []byte) bool {
	if f == nil || len(s.opts.Prefix) == 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[s.opts.Rank] = true
	if max(len(f.open), len(f.seen)) <= f.above {
		return false
	}
	now := time.Now()
	for len(lines) > 0 {
		n := LineLen(lines)
		f.show(f.folder.Add(fold.Line{Rank: s.opts.Rank, Stream: foldStream(s), Text: lines[:n], At: now}), s)
		lines = lines[n:]
	}
	f.startTimer(now)
	return true
}

// foldStream keeps lines of different attempts apart: after a restart, ranks print the same lines
// again.
func foldStream(s *Splitter) fold.Stream {
	return fold.Stream(2*(s.opts.Attempt%maxFoldedAttempts) + int(s.opts.Stream))
}

// streamOf is the inverse of foldStream.
func streamOf(s fold.Stream) Stream { return Stream(1 + (s-1)%2) }

// maxFoldedAttempts is the number of attempts that a fold.Stream of eight bits can distinguish.
const maxFoldedAttempts = 126

// tick shows the groups that have waited long enough.
func (f *folding) tick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.show(f.folder.Tick(now), nil)
	f.startTimer(now)
}

func (f *folding) startTimer(now time.Time) {
	if due, any := f.folder.Due(); any {
		f.timer.Reset(max(0, due.Sub(now)))
	}
}

func (f *folding) flush() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timer.Stop()
	f.show(f.folder.Flush(), nil)
}

// show shows groups with the patience of the splitter whose line completed them, if any.
func (f *folding) show(groups []fold.Group, by *Splitter) {
	for _, g := range groups {
		s := Splitter{printer: f.console.printer(streamOf(g.Stream)), opts: SplitOptions{Prefix: g.Who() + " "}}
		if by != nil {
			s.opts.Cancel, s.patient = by.opts.Cancel, by.patient
		}
		s.show(append([]byte(Visible(g.Text())), '\n')) // visible in files too: it is no copy of a log
	}
}

// relay takes lines that another process has prefixed, or returns false if the caller must show
// them as they are.
func (f *folding) relay(s *Splitter, lines []byte) bool {
	if f == nil {
		return false
	}
	plain := Splitter{printer: s.printer, opts: SplitOptions{Cancel: s.opts.Cancel}, patient: s.patient}
	for len(lines) > 0 {
		n := LineLen(lines)
		line := lines[:n]
		lines = lines[n:]
		rank, prefix, text, ok := cutPrefix(line)
		prefixed := plain
		prefixed.opts.Prefix, prefixed.opts.Source = prefix, Source{Rank: rank, Stream: s.opts.Stream}
		if !ok || !f.add(&prefixed, text) {
			plain.show(line)
		}
	}
	return true
}

// cutPrefix splits a line that begins with "[r3 n1] " or "[r3] ".
func cutPrefix(line []byte) (rank int, prefix string, text []byte, ok bool) {
	if !bytes.HasPrefix(line, []byte("[r")) {
		return 0, "", nil, false
	}
	end := bytes.Index(line, []byte("] "))
	if end < 0 {
		return 0, "", nil, false
	}
	number, _, _ := bytes.Cut(line[2:end], []byte{' '})
	rank, err := strconv.Atoi(string(number))
	if err != nil || rank < 0 {
		return 0, "", nil, false
	}
	return rank, string(line[:end+2]), line[end+2:], true
}
