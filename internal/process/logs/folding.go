package logs

import (
	"bytes"
	"strconv"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/process/fold"
)

// Fold has lines that ranks have in common be shown once, with the ranks that say them, as soon as more than so many ranks are shown with
// a prefix; see internal/process/fold. Files have all lines as they are. It is called before anything is shown.
func (c *Console) Fold(above int) {
	c.folding = &folding{console: c, above: above, folder: fold.New(0, nil), live: map[int]int{}, seen: map[int]bool{}}
	c.folding.timer = time.AfterFunc(time.Hour, c.folding.tick)
	c.folding.timer.Stop()
}

// Terminal says that ranks' stdout goes to a terminal.
func (c *Console) Terminal() bool { return c.out.sink.tty }

// folding folds the lines of a console. Who shows what is folded may wait for the console, and others behind him.
type folding struct {
	console *Console
	above   int

	mu     sync.Mutex
	folder *fold.Folder
	timer  *time.Timer
	// live counts the outputs of each rank that are open, and seen are ranks that were ever shown.
	live map[int]int
	seen map[int]bool
}

// begin and end say that there is an output of a rank.
func (f *folding) begin(rank int) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live[rank]++
	f.seen[rank] = true
	f.expect()
}

func (f *folding) end(rank int) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live[rank]--; f.live[rank] <= 0 {
		delete(f.live, rank)
	}
	f.expect()
}

func (f *folding) expect() {
	ranks := make([]int, 0, len(f.live))
	for rank := range f.live {
		ranks = append(ranks, rank)
	}
	f.show(f.folder.Expect(fold.Of(ranks...)), nil)
}

// expectWorld is begin for all ranks of a job.
func (f *folding) expectWorld(size int) {
	if f == nil || size == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live[size-1] > 0 && len(f.live) == size {
		return
	}
	clear(f.live)
	for rank := range size {
		f.live[rank] = 1
	}
	f.show(f.folder.Expect(fold.World(size)), nil)
}

// add takes lines of a rank. It is false where they are to be shown as they are.
func (f *folding) add(v *view, lines []byte) bool {
	if f == nil || len(v.prefix) == 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[v.rank] = true
	if max(len(f.live), len(f.seen)) <= f.above {
		return false
	}
	now := time.Now()
	for len(lines) > 0 {
		n := lineOf(lines)
		f.show(f.folder.Add(fold.Line{Rank: v.rank, Stream: foldStream(v), Text: lines[:n], At: now}), v)
		lines = lines[n:]
	}
	f.arm(now)
	return true
}

// foldStream has lines of different attempts stay apart, as those of stdout and stderr do: after a restart ranks say the same again.
func foldStream(v *view) fold.Stream { return fold.Stream(2*(v.attempt%maxFolded) + int(v.stream)) }

// streamOf is the way back.
func streamOf(s fold.Stream) Stream { return Stream(1 + (s-1)%2) }

// maxFolded is how many attempts are told apart at a time, by a number of eight bits.
const maxFolded = 126

// tick shows what has waited long enough.
func (f *folding) tick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.show(f.folder.Tick(now), nil)
	f.arm(now)
}

func (f *folding) arm(now time.Time) {
	if due, any := f.folder.Due(); any {
		f.timer.Reset(max(0, due.Sub(now)))
	}
}

// flush shows all that waits.
func (f *folding) flush() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timer.Stop()
	f.show(f.folder.Flush(), nil)
}

// show hands groups to their lanes, as a view that brought them would its own lines.
func (f *folding) show(groups []fold.Group, by *view) {
	for _, g := range groups {
		v := view{lane: f.console.lane(streamOf(g.Stream)), prefix: []byte(g.Who() + " ")}
		if by != nil {
			v.hide, v.patient = by.hide, by.patient
		}
		v.show(append([]byte(Visible(g.Text())), '\n')) // which is no copy of a file, also where no terminal is
	}
}

// relay takes lines that another process has prefixed. It is false where they are to be shown as they are.
func (f *folding) relay(v *view, lines []byte) bool {
	if f == nil {
		return false
	}
	plain := view{lane: v.lane, hide: v.hide, patient: v.patient}
	for len(lines) > 0 {
		n := lineOf(lines)
		line := lines[:n]
		lines = lines[n:]
		rank, prefix, text, ok := relayed(line)
		w := view{lane: v.lane, hide: v.hide, patient: v.patient, prefix: prefix, rank: rank, stream: v.stream}
		if !ok || !f.add(&w, text) {
			plain.show(line)
		}
	}
	return true
}

// relayed is the rank of a line that another process has prefixed with "[r3 n1] ", and the line behind that.
func relayed(line []byte) (rank int, prefix, text []byte, ok bool) {
	if !bytes.HasPrefix(line, []byte("[r")) {
		return 0, nil, nil, false
	}
	end := bytes.Index(line, []byte("] "))
	if end < 0 {
		return 0, nil, nil, false
	}
	number, _, _ := bytes.Cut(line[2:end], []byte{' '})
	rank, err := strconv.Atoi(string(number))
	if err != nil || rank < 0 {
		return 0, nil, nil, false
	}
	return rank, line[:end+2], line[end+2:], true
}
