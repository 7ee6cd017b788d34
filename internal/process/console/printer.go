package console

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
	// maxBuffer is the size of a console buffer. A longer line gets a larger buffer of its own.
	maxBuffer   = 128 << 10
	buffers     = 16
	maxMessages = 256
	maxMessage  = 64 << 10
	// patience is how long a rank waits for a reader that takes nothing.
	patience = time.Second
)

// printer writes one stream of the console. Its goroutine owns the sink. A rank's pump takes a free
// buffer, fills it with whole lines and queues it; the printer frees it once it is written. So
// memory is bounded, no lock is needed, and a pump that finds no free buffer waits.
type printer struct {
	stream   Stream
	sink     *sink
	patience time.Duration
	// live is the bottom of a terminal; nil without a terminal.
	live *liveArea
	free chan []byte
	// queue has room for all buffers, all messages, the end mark and one redraw, so sending never
	// blocks.
	queue    chan entry
	messages chan struct{}
	// notices is the printer of the messages about lost lines; nil if it is this printer.
	notices *printer
	// stuckAt is the number of bytes that the reader had taken when a pump last gave up. While the
	// reader has not taken more, no pump waits again.
	stuckAt atomic.Int64
	// lost counts the lost lines that no message has reported yet.
	lost atomic.Int64
	// midLine says that the last write did not end its line. It and err, which stopped the printer,
	// belong to the printer's goroutine until done is closed.
	midLine bool
	err     error
	done    chan struct{}
}

// entry is a buffer of lines, raw output, a message, a redraw of the live area, or the end mark,
// which has a nil text.
type entry struct {
	text                 []byte
	message, raw, redraw bool
}

func newPrinter(stream Stream, s *sink, notices *printer) *printer {
	p := &printer{
		stream:   stream,
		sink:     s,
		patience: patience,
		live:     newLiveArea(s),
		free:     make(chan []byte, buffers),
		queue:    make(chan entry, buffers+maxMessages+2),
		messages: make(chan struct{}, maxMessages),
		notices:  notices,
		done:     make(chan struct{}),
	}
	p.stuckAt.Store(math.MinInt64)
	for range buffers {
		p.free <- nil
	}
	go p.run()
	return p
}

func (p *printer) run() {
	defer close(p.done)
	for e := range p.queue {
		switch {
		case e.redraw:
		case e.text == nil:
			p.eraseLive()
			p.reportLost()
			return
		default:
			p.sink.left.Store(countLines(e.text))
			p.eraseLive()
			p.write(e.text, e.raw)
			p.release(e)
		}
		if len(p.queue) == 0 {
			p.drawLive()
		}
	}
}

func (p *printer) eraseLive() {
	if p.live != nil && p.err == nil {
		p.err = p.sink.write(p.live.erase())
	}
}

func (p *printer) drawLive() {
	if p.live != nil && p.err == nil && !p.midLine {
		p.err = p.sink.write(p.live.draw(p.live.erase(), p.sink.height()))
	}
}

// setRow changes a row of the live area and redraws it soon.
func (p *printer) setRow(r *liveRow, text []byte) {
	p.live.set(r, text, func() { p.queue <- entry{redraw: true} })
}

func (p *printer) write(text []byte, raw bool) {
	if p.err == nil {
		if !raw {
			p.err = p.endLine()
		}
		if p.err == nil {
			p.err = p.sink.show(text)
		}
		if p.err == nil {
			p.midLine = text[len(text)-1] != '\n'
			p.reportLost()
			return
		}
		if p.notices != nil {
			p.notices.say(fmt.Sprintf("%s: %v: nothing more is shown there; the log files have it", p.stream, p.err))
		}
	}
	p.lost.Add(p.sink.left.Swap(0))
}

// endLine makes the next text start on a new line.
func (p *printer) endLine() error {
	if !p.midLine {
		return nil
	}
	p.midLine = false
	return p.sink.write([]byte{'\n'})
}

// reportLost says how many lines were lost. It is called when the reader reads again.
func (p *printer) reportLost() {
	if p.err != nil || p.lost.Load() == 0 {
		return
	}
	n := p.lost.Load()
	notice := fmt.Sprintf("%s was not read for a while: lines not shown: %d; the log files have the ranks'", p.stream, n)
	switch {
	case p.notices == nil:
		if p.err = p.endLine(); p.err == nil {
			p.err = p.sink.write(p.messageLines(notice))
		}
		if p.err == nil {
			p.lost.Add(-n)
		}
	case p.notices.say(notice):
		p.lost.Add(-n)
	}
}

func (p *printer) release(e entry) {
	switch {
	case e.message:
		<-p.messages
	case cap(e.text) > maxBuffer:
		p.free <- nil // not the buffer: it grew for a long line, or for escapes made visible
	default:
		p.free <- e.text
	}
}

func (p *printer) say(text string) bool { return p.print(p.messageLines(text)) }

// print queues whole lines of golaunch itself, and reports whether there was room. It never waits.
func (p *printer) print(lines []byte) bool {
	select {
	case p.messages <- struct{}{}:
	default:
		return false
	}
	p.queue <- entry{text: lines, message: true}
	return true
}

// messageLines puts "golaunch: " before each line of a text.
func (p *printer) messageLines(text string) []byte {
	s := Splitter{printer: p}
	var b []byte
	for line := range strings.Lines(strings.TrimSuffix(text[:min(len(text), maxMessage)], "\n") + "\n") {
		b = s.appendLine(append(b, "golaunch: "...), []byte(line))
	}
	return b
}

// take returns an empty buffer; put must follow. It waits for a slow reader. It returns nil if
// cancel is closed, or if the reader takes nothing for a second. After that it returns nil at once,
// until the reader takes something.
func (p *printer) take(cancel <-chan struct{}) []byte {
	select {
	case b := <-p.free:
		return emptied(b)
	default:
	}
	before := p.sink.taken()
	for p.stuckAt.Load() != before {
		select {
		case b := <-p.free:
			return emptied(b)
		case <-cancel:
			return nil
		case <-time.After(p.patience):
		}
		now := p.sink.taken()
		if now == before {
			p.stuckAt.Store(now)
		}
		before = now
	}
	return nil
}

// takePatiently is like take, but waits for any reader until cancel is closed.
func (p *printer) takePatiently(cancel <-chan struct{}) []byte {
	select {
	case b := <-p.free:
		return emptied(b)
	default:
	}
	select {
	case b := <-p.free:
		return emptied(b)
	case <-cancel:
		return nil
	}
}

func emptied(b []byte) []byte {
	if b == nil {
		return make([]byte, 0, maxBuffer)
	}
	return b[:0]
}

func (p *printer) put(b []byte) { p.queue <- entry{text: b} }

// close writes everything that is queued. It waits up to a minute while the reader reads, and gives
// up after five seconds in which the reader takes nothing.
func (p *printer) close() error {
	p.queue <- entry{}
	before := p.sink.taken()
	for range closeRounds {
		select {
		case <-p.done:
			return p.closeError(p.err)
		case <-time.After(closePatience):
		}
		now := p.sink.taken()
		if now == before {
			break
		}
		before = now
	}
	for {
		select {
		case e := <-p.queue:
			p.lost.Add(countLines(e.text))
		default:
			p.queue <- entry{} // the end mark was among the entries taken
			p.lost.Add(p.sink.left.Load())
			return p.closeError(errors.New("its reader does not read"))
		}
	}
}

const (
	closePatience = 5 * time.Second
	closeRounds   = 12
)

func (p *printer) closeError(err error) error {
	n := p.lost.Load()
	switch {
	case err != nil:
		return fmt.Errorf("show the output on %s: %w (lines not shown: %d; the log files have the ranks')", p.stream, err, n)
	case n > 0:
		return fmt.Errorf("show the output on %s: lines not shown: %d; the log files have the ranks'", p.stream, n)
	}
	return nil
}

func countLines(text []byte) int64 { return int64(bytes.Count(text, []byte{'\n'})) }
