package logs

import (
	"bytes"
	"slices"
	"time"
)

const (
	// maxLine is the longest piece of a line on the console, in bytes. A longer line is cut.
	maxLine = 4 << 20
	// maxRead is the most that is read at once.
	maxRead = 64 << 10
	minRead = 4 << 10
	// maxRow is more than a row of a terminal shows.
	maxRow = 1 << 10
	// stands is how long a line without an end may stay as it is before that is shown, and moves how long one that overwrites itself, as a
	// bar does, may go on before it is shown how far it is.
	stands = time.Second
	moves  = 10 * time.Second
)

// view cuts a stream of bytes into lines and shows them, prefixed, on a lane. What it shows does not depend on how the stream
// was cut into reads.
type view struct {
	// lane is nil when the stream is not shown: view is then just a read buffer.
	lane   *lane
	prefix []byte
	// raw views show all as it is, at once.
	raw bool
	// hide, when closed, ends waiting for the console.
	hide <-chan struct{}
	// patient views wait for a console that does not move, and lose nothing until hide is closed.
	patient bool
	// filter, if set, keeps some of the lines that are shown.
	filter *filter
	// buf[:kept] is text that was not shown yet of a line whose end has not come; kept is at most maxLine. Its first byte came at began,
	// its last at grown. stood says that the line has more before it, which was shown.
	buf          []byte
	kept         int
	began, grown time.Time
	stood        bool
	full         bool
	// bar says that the line has overwritten itself.
	bar bool
	// row shows buf[:kept], which is the rank's, at the bottom of a terminal; nil before there was any.
	row           *row
	rank, attempt int
	// fold folds what is shown, and relays does so by the prefixes that it has already; nil folds nothing.
	fold, relays *folding
	stream       Stream
}

// room is where the next read goes. The buffer grows while reads fill it, so that a silent rank costs little, and one that has written
// a very long line costs no more for it afterwards.
func (v *view) room() []byte {
	if len(v.buf) > 4*maxRead && v.kept < maxRead {
		v.buf = append(make([]byte, 0, 2*maxRead), v.buf[:v.kept]...)[:2*maxRead]
	}
	if (v.full || v.kept == len(v.buf)) && len(v.buf) < maxLine+maxRead {
		grown := make([]byte, min(max(minRead, 4*len(v.buf)), maxLine+maxRead))
		copy(grown, v.buf[:v.kept])
		v.buf = grown
	}
	return v.buf[v.kept:min(v.kept+maxRead, len(v.buf))]
}

// add shows the lines that are whole with the n bytes just read to room.
func (v *view) add(n int) {
	end := v.kept + n
	v.full = end == len(v.buf)
	if v.lane == nil {
		return
	}
	if v.raw {
		v.pass(v.buf[:end])
		return
	}
	cut := v.kept + bytes.LastIndexByte(v.buf[v.kept:end], '\n') + 1
	switch {
	case cut > v.kept:
	case end > maxLine:
		cut = maxLine
	default:
		v.grown = time.Now()
		if v.kept == 0 {
			v.began = v.grown
		}
		from := v.kept
		v.kept = end
		v.forget(from)
		v.tell()
		return
	}
	v.hush()
	v.show(v.take(cut))
	v.kept, v.began, v.bar = copy(v.buf, v.buf[cut:end]), time.Now(), false
	v.grown = v.began
	v.forget(0)
	v.tell()
}

// forget drops what a line that overwrites itself has overwritten, which is not shown. What is new begins at from.
func (v *view) forget(from int) {
	text := bytes.TrimRight(v.buf[:v.kept], "\r")
	from = min(max(0, from-1), len(text)) // it may overwrite what ended with a carriage return
	if i := bytes.LastIndexByte(text[from:], '\r'); i >= 0 {
		v.kept, v.bar = copy(v.buf, v.buf[from+i+1:v.kept]), true
	}
}

// hush takes the start of a line from the bottom of a terminal, before the whole of it is shown.
func (v *view) hush() {
	if v.row != nil {
		v.lane.unfinished(v.row, nil)
	}
}

// tell shows the start of a line at the bottom of a terminal.
func (v *view) tell() {
	if v.lane.live == nil {
		return
	}
	text := bytes.TrimRight(v.buf[:v.kept], "\r")
	if len(text) > 0 {
		text = appendVisible(append([]byte(nil), v.prefix...), text[:min(len(text), maxRow)], true)
		if v.row == nil {
			v.row = v.lane.live.add(v.rank)
		}
	}
	if v.row != nil {
		v.lane.unfinished(v.row, text)
	}
}

// take is the text up to an end, which begins a line of the console: what only ended, or overwrote, a line that stood is not shown again.
func (v *view) take(end int) []byte {
	text := v.buf[:end]
	if v.stood {
		text = bytes.TrimPrefix(bytes.TrimPrefix(text, []byte{'\r'}), []byte{'\n'})
	}
	v.stood = false
	return text
}

// stand is when the start of a line is shown though its end has not come: a prompt, or a bar that has not moved. It is zero for never.
func (v *view) stand() time.Time {
	if v.lane == nil || v.raw || v.kept == 0 || v.lane.live != nil {
		return time.Time{}
	}
	at := v.grown.Add(stands)
	if late := v.began.Add(moves); late.Before(at) && (v.bar || isBar(v.buf[:v.kept])) {
		return late
	}
	return at
}

// showStanding shows the start of a line, the last text of a line that overwrites itself.
func (v *view) showStanding() {
	text := bytes.TrimRight(v.take(v.kept), "\r")
	v.kept, v.stood, v.bar = 0, true, false
	if text = text[bytes.LastIndexByte(text, '\r')+1:]; len(text) > 0 {
		v.show(text)
	}
}

// pass hands bytes to the lane as they are, or counts their lines as lost.
func (v *view) pass(all []byte) {
	for len(all) > 0 {
		b := v.lane.take(v.hide)
		if b == nil {
			v.lane.lost.Add(max(1, count(all)))
			return
		}
		n := min(len(all), maxBuffer)
		v.lane.queue <- entry{text: append(b, all[:n]...), raw: true}
		all = all[n:]
	}
}

// end shows a line that has no end.
func (v *view) end() {
	if v.kept > 0 {
		v.hush()
		v.show(v.take(v.kept))
		v.kept = 0
	}
	v.leave()
}

// leave gives up the row at the bottom of a terminal.
func (v *view) leave() {
	if v.row != nil {
		v.hush()
		v.lane.live.remove(v.row)
		v.row = nil
	}
}

// show hands lines to the lane, or counts them as lost.
func (v *view) show(lines []byte) {
	if v.filter != nil {
		v.filter.keep(v.prefix, lines)
	}
	if v.fold.add(v, lines) || v.relays.relay(v, lines) {
		return
	}
	take := v.lane.take
	if v.patient {
		take = v.lane.wait
	}
	for len(lines) > 0 {
		b := take(v.hide)
		if b == nil {
			v.lane.lost.Add(max(1, count(lines)))
			return
		}
		b, lines = v.fill(b, lines)
		v.lane.put(b)
	}
}

// fill appends to b as many lines as it has room for, at least one, and returns b and the other lines.
func (v *view) fill(b, lines []byte) ([]byte, []byte) {
	for len(lines) > 0 {
		n := lineOf(lines)
		if len(b) > 0 && len(b)+len(v.prefix)+n+1 > maxBuffer {
			break
		}
		b = append(b, v.prefix...)
		b = v.appendLine(b, lines[:n])
		lines = lines[n:]
	}
	return b, lines
}

// lineOf is the length of the first of some lines, with its newline; one that is longer than a piece of it.
func lineOf(lines []byte) int {
	n := bytes.IndexByte(lines, '\n') + 1
	if n == 0 || n > maxLine+1 {
		return min(len(lines), maxLine)
	}
	return n
}

// filter keeps the lines that have one of some texts.
type filter struct {
	texts []string
	file  *logFile
}

// keep writes each line at once, so that those of several ranks do not mix.
func (f *filter) keep(prefix, lines []byte) {
	for len(lines) > 0 {
		line := lines[:lineOf(lines)]
		lines = lines[len(line):]
		if !slices.ContainsFunc(f.texts, func(text string) bool { return bytes.Contains(line, []byte(text)) }) {
			continue
		}
		text := slices.Concat(prefix, line)
		if line[len(line)-1] != '\n' {
			text = append(text, '\n')
		}
		f.file.write(text)
	}
}

// appendLine appends a line or a piece of one, and sees to the newline. Of a line that overwrites itself the last text remains, elsewhere
// too than on a terminal: it would overwrite the prefix, and the lines of other ranks beside it.
func (v *view) appendLine(b, line []byte) []byte {
	if v.lane.sink.tty {
		return append(appendVisible(b, bytes.TrimSuffix(line, []byte{'\n'}), true), '\n')
	}
	line = line[bytes.LastIndexByte(bytes.TrimRight(line, "\r\n"), '\r')+1:]
	b = append(b, line...)
	if line[len(line)-1] != '\n' {
		b = append(b, '\n')
	}
	return b
}
