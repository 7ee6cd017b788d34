package logs

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// maxBuffer is the size of a console buffer. One with a longer line is of that line alone.
	maxBuffer = 128 << 10
	buffers   = 16
	maxWords  = 256
	maxWord   = 64 << 10
	// patience is how long a rank is held up by a console that does not move.
	patience = time.Second
)

// lane is one side of the console. Its goroutine owns the sink. Buffers go round: a pump takes a free one, fills it with whole
// lines and puts it on the queue, and the lane gives it back once written. So memory is bounded, nobody locks, and a pump that
// finds no free buffer feels the back-pressure.
type lane struct {
	name Stream
	sink *sink
	// patience is longer in tests that may lose no line on a busy machine.
	patience time.Duration
	// live is the bottom of a terminal; nil elsewhere.
	live *live
	free chan []byte
	// queue has room for all buffers, all words, the end mark and one drawing, so that sending to it never blocks.
	queue chan entry
	words chan struct{}
	// notices is the lane that tells of lost lines; nil for that lane itself.
	notices *lane
	// stuckAt is what the sink's reader had taken when a pump last lost patience; while it is still so, nobody waits again.
	stuckAt atomic.Int64
	// lost counts lines that were not shown and not told of yet.
	lost atomic.Int64
	// open says that what was written last has not ended its line, and err is why the lane stopped. They belong to the lane's goroutine until done is closed.
	open bool
	err  error
	done chan struct{}
}

// entry is a buffer, of whole lines unless it is raw, a word of golaunch's own, the wish to have the bottom drawn, or the end mark (text is
// nil).
type entry struct {
	text            []byte
	word, raw, draw bool
}

func newLane(name Stream, s *sink, notices *lane) *lane {
	l := &lane{
		name:     name,
		sink:     s,
		patience: patience,
		live:     newLive(s),
		free:     make(chan []byte, buffers),
		queue:    make(chan entry, buffers+maxWords+2),
		words:    make(chan struct{}, maxWords),
		notices:  notices,
		done:     make(chan struct{}),
	}
	l.stuckAt.Store(math.MinInt64)
	for range buffers {
		l.free <- nil
	}
	go l.run()
	return l
}

func (l *lane) run() {
	defer close(l.done)
	for e := range l.queue {
		switch {
		case e.draw:
		case e.text == nil:
			l.wipe()
			l.tell()
			return
		default:
			l.sink.left.Store(count(e.text))
			l.wipe()
			l.write(e.text, e.raw)
			l.giveBack(e)
		}
		if len(l.queue) == 0 {
			l.draw()
		}
	}
}

// wipe takes the bottom of a terminal away.
func (l *lane) wipe() {
	if l.live != nil && l.err == nil {
		l.err = l.sink.write(l.live.wipe(nil))
	}
}

// draw has the bottom of a terminal be as it is by now.
func (l *lane) draw() {
	if l.live != nil && l.err == nil && !l.open {
		l.err = l.sink.write(l.live.draw(l.live.wipe(nil), l.sink.height()))
	}
}

// unfinished says what a line has that has no end yet.
func (l *lane) unfinished(r *row, text []byte) {
	l.live.set(r, text, func() { l.queue <- entry{draw: true} })
}

func (l *lane) write(text []byte, raw bool) {
	if l.err == nil {
		if !raw {
			l.err = l.endLine()
		}
		if l.err == nil {
			l.err = l.sink.show(text)
		}
		if l.err == nil {
			l.open = text[len(text)-1] != '\n'
			l.tell()
			return
		}
		if l.notices != nil {
			l.notices.say(fmt.Sprintf("%s: %v: nothing more is shown there; the log files have it", l.name, l.err))
		}
	}
	l.lost.Add(l.sink.left.Swap(0))
}

// endLine has what follows begin a line of its own.
func (l *lane) endLine() error {
	if !l.open {
		return nil
	}
	l.open = false
	return l.sink.write([]byte{'\n'})
}

// tell says how many lines were lost, now that the console moves again.
func (l *lane) tell() {
	if l.err != nil || l.lost.Load() == 0 {
		return
	}
	n := l.lost.Load()
	notice := fmt.Sprintf("nobody read %s for a while: lines not shown: %d; the log files have the ranks'", l.name, n)
	switch {
	case l.notices == nil:
		if l.err = l.endLine(); l.err == nil {
			l.err = l.sink.write(l.own(notice))
		}
		if l.err == nil {
			l.lost.Add(-n)
		}
	case l.notices.say(notice):
		l.lost.Add(-n)
	}
}

func (l *lane) giveBack(e entry) {
	switch {
	case e.word:
		<-l.words
	case cap(e.text) > maxBuffer:
		l.free <- nil // grown by a long line, or by escapes made visible
	default:
		l.free <- e.text
	}
}

// say queues words of golaunch's own, and reports whether there was room. It never waits.
func (l *lane) say(text string) bool { return l.print(l.own(text)) }

// print is say for lines that are whole already.
func (l *lane) print(lines []byte) bool {
	select {
	case l.words <- struct{}{}:
	default:
		return false
	}
	l.queue <- entry{text: lines, word: true}
	return true
}

// own is text as lines of golaunch's own.
func (l *lane) own(text string) []byte {
	v := view{lane: l}
	var b []byte
	for line := range strings.Lines(strings.TrimSuffix(text[:min(len(text), maxWord)], "\n") + "\n") {
		b = v.appendLine(append(b, "golaunch: "...), []byte(line))
	}
	return b
}

// take returns an empty buffer, which put must follow. It waits while the console moves, however slowly; it returns nil when
// nothing moves for a second, when that was so before and still is, or when hide is closed.
func (l *lane) take(hide <-chan struct{}) []byte {
	select {
	case b := <-l.free:
		return fresh(b)
	default:
	}
	before := l.sink.taken()
	for l.stuckAt.Load() != before {
		select {
		case b := <-l.free:
			return fresh(b)
		case <-hide:
			return nil
		case <-time.After(l.patience):
		}
		now := l.sink.taken()
		if now == before {
			l.stuckAt.Store(now)
		}
		before = now
	}
	return nil
}

// wait is take that waits until hide is closed, whether or not anything moves.
func (l *lane) wait(hide <-chan struct{}) []byte {
	select {
	case b := <-l.free:
		return fresh(b)
	default:
	}
	select {
	case b := <-l.free:
		return fresh(b)
	case <-hide:
		return nil
	}
}

func fresh(b []byte) []byte {
	if b == nil {
		return make([]byte, 0, maxBuffer)
	}
	return b[:0]
}

func (l *lane) put(b []byte) { l.queue <- entry{text: b} }

// close writes what is queued. It waits as long as the reader moves, up to a minute, and gives up after five seconds of silence.
func (l *lane) close() error {
	l.queue <- entry{}
	before := l.sink.taken()
	for range closeRounds {
		select {
		case <-l.done:
			return l.verdict(l.err)
		case <-time.After(closePatience):
		}
		now := l.sink.taken()
		if now == before {
			break
		}
		before = now
	}
	for {
		select {
		case e := <-l.queue:
			l.lost.Add(count(e.text))
		default:
			l.queue <- entry{} // the end mark is among what was taken
			l.lost.Add(l.sink.left.Load())
			return l.verdict(errors.New("nobody reads it"))
		}
	}
}

const (
	closePatience = 5 * time.Second
	closeRounds   = 12
)

func (l *lane) verdict(err error) error {
	n := l.lost.Load()
	switch {
	case err != nil:
		return fmt.Errorf("show the output on %s: %w (lines not shown: %d; the log files have the ranks')", l.name, err, n)
	case n > 0:
		return fmt.Errorf("show the output on %s: lines not shown: %d; the log files have the ranks'", l.name, n)
	}
	return nil
}

func count(text []byte) int64 { return int64(bytes.Count(text, []byte{'\n'})) }
