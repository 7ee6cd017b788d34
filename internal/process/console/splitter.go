package console

import (
	"bytes"
	"time"
)

const (
	// maxLine is the longest piece of a line that is shown, in bytes. A longer line is cut.
	maxLine = 4 << 20
	// MaxRead is the largest buffer of a [Splitter], in bytes.
	MaxRead = 64 << 10
	// minRead is the smallest buffer, in bytes. Most ranks are silent when they start.
	minRead = 1 << 10
	// maxRow is more bytes than a row of a terminal shows.
	maxRow = 1 << 10
	// partialAfter is how long an unfinished line stays unchanged before it is shown. movingAfter
	// is the time after which a line that keeps overwriting itself, such as a progress bar, is
	// shown again.
	partialAfter = time.Second
	movingAfter  = 10 * time.Second
)

// SplitOptions says how a rank's output is shown.
type SplitOptions struct {
	Source
	// Prefix is shown before each line.
	Prefix string
	// Raw shows everything unchanged and at once; it needs an empty Prefix.
	Raw bool
	// Fold folds lines that ranks have in common, if the console folds.
	Fold bool
	// Cancel, when closed, ends any wait for the reader of the console.
	Cancel <-chan struct{}
	// OnLines, if set, is called with the prefix and each batch of lines.
	OnLines func(prefix string, lines []byte)
}

// Splitter cuts a stream of bytes into lines and shows them on a console. The caller reads into
// Buffer and then calls Add. The size of the reads does not change what is shown. The zero value
// shows nothing: it is just a read buffer. A Splitter belongs to one goroutine.
type Splitter struct {
	// printer is nil if the stream is not shown.
	printer *printer
	opts    SplitOptions
	// patient makes the splitter wait for a reader that takes nothing, and lose no line until
	// Cancel is closed.
	patient bool
	// fold folds the lines, and relays folds lines that already have a prefix; nil folds nothing.
	fold, relays *folding
	// buf[:kept] is the part of the unfinished line that was not shown yet; kept is at most
	// maxLine. Its first byte was read at began, its last at grown. partShown says that a part of
	// the line was shown.
	buf          []byte
	kept         int
	began, grown time.Time
	partShown    bool
	full         bool
	// overwrites says that the line has overwritten itself.
	overwrites bool
	// row shows the unfinished line at the bottom of a terminal; nil before the first one.
	row *liveRow
}

// Split returns a splitter for one output of a rank.
func (c *Console) Split(o SplitOptions) Splitter {
	s := Splitter{printer: c.printer(o.Stream), opts: o}
	if o.Fold {
		s.fold = c.folding
	}
	return s
}

// Buffer is where the next read goes. It grows while reads fill it, so a silent rank costs little,
// and shrinks again after a very long line.
func (s *Splitter) Buffer() []byte {
	if len(s.buf) > 4*MaxRead && s.kept < MaxRead {
		s.buf = append(make([]byte, 0, 2*MaxRead), s.buf[:s.kept]...)[:2*MaxRead]
	}
	if (s.full || s.kept == len(s.buf)) && len(s.buf) < maxLine+MaxRead {
		grown := make([]byte, min(max(minRead, 4*len(s.buf)), maxLine+MaxRead))
		copy(grown, s.buf[:s.kept])
		s.buf = grown
	}
	return s.buf[s.kept:min(s.kept+MaxRead, len(s.buf))]
}

// Add shows the lines that are complete with the n bytes just read into Buffer.
func (s *Splitter) Add(n int) {
	end := s.kept + n
	s.full = end == len(s.buf)
	if s.printer == nil {
		return
	}
	if s.opts.Raw {
		s.showRaw(s.buf[:end])
		return
	}
	cut := s.kept + bytes.LastIndexByte(s.buf[s.kept:end], '\n') + 1
	switch {
	case cut > s.kept:
	case end > maxLine:
		cut = maxLine
	default:
		s.grown = time.Now()
		if s.kept == 0 {
			s.began = s.grown
		}
		from := s.kept
		s.kept = end
		s.dropOverwritten(from)
		s.showRow()
		return
	}
	s.clearRow()
	s.show(s.unshown(cut))
	s.kept, s.began, s.overwrites = copy(s.buf, s.buf[cut:end]), time.Now(), false
	s.grown = s.began
	s.dropOverwritten(0)
	s.showRow()
}

// dropOverwritten forgets the overwritten text of the unfinished line. New bytes begin at from.
func (s *Splitter) dropOverwritten(from int) {
	text := bytes.TrimRight(s.buf[:s.kept], "\r")
	from = min(max(0, from-1), len(text)) // the byte before may be a carriage return
	if i := bytes.LastIndexByte(text[from:], '\r'); i >= 0 {
		s.kept, s.overwrites = copy(s.buf, s.buf[from+i+1:s.kept]), true
	}
}

func (s *Splitter) clearRow() {
	if s.row != nil {
		s.printer.setRow(s.row, nil)
	}
}

// showRow shows the unfinished line at the bottom of a terminal.
func (s *Splitter) showRow() {
	if s.printer.live == nil {
		return
	}
	text := bytes.TrimRight(s.buf[:s.kept], "\r")
	if len(text) > 0 {
		text = AppendVisible(append([]byte(nil), s.opts.Prefix...), text[:min(len(text), maxRow)], true)
		if s.row == nil {
			s.row = s.printer.live.add(s.opts.Rank)
		}
	}
	if s.row != nil {
		s.printer.setRow(s.row, text)
	}
}

// unshown returns buf[:end]. It omits a line end that does no more than finish or overwrite a shown
// part.
func (s *Splitter) unshown(end int) []byte {
	text := s.buf[:end]
	if s.partShown {
		text = bytes.TrimPrefix(bytes.TrimPrefix(text, []byte{'\r'}), []byte{'\n'})
	}
	s.partShown = false
	return text
}

// PartialAt returns the time for a call of ShowPartial; zero means never.
func (s *Splitter) PartialAt() time.Time {
	if s.printer == nil || s.opts.Raw || s.kept == 0 || s.printer.live != nil {
		return time.Time{}
	}
	at := s.grown.Add(partialAfter)
	if late := s.began.Add(movingAfter); late.Before(at) && (s.overwrites || Overwrites(s.buf[:s.kept])) {
		return late
	}
	return at
}

// Overwrites reports whether text ends in a line that overwrites itself.
func Overwrites(text []byte) bool {
	return bytes.LastIndexByte(text, '\r') > bytes.LastIndexByte(text, '\n')
}

// ShowPartial shows the unfinished line, or its last text if the line overwrites itself.
func (s *Splitter) ShowPartial() {
	text := bytes.TrimRight(s.unshown(s.kept), "\r")
	s.kept, s.partShown, s.overwrites = 0, true, false
	if text = text[bytes.LastIndexByte(text, '\r')+1:]; len(text) > 0 {
		s.show(text)
	}
}

func (s *Splitter) showRaw(all []byte) {
	for len(all) > 0 {
		b := s.printer.take(s.opts.Cancel)
		if b == nil {
			s.printer.lost.Add(max(1, countLines(all)))
			return
		}
		n := min(len(all), maxBuffer)
		s.printer.queue <- entry{text: append(b, all[:n]...), raw: true}
		all = all[n:]
	}
}

// End shows the unfinished line and gives up its row.
func (s *Splitter) End() {
	if s.kept > 0 {
		s.clearRow()
		s.show(s.unshown(s.kept))
		s.kept = 0
	}
	s.removeRow()
}

func (s *Splitter) removeRow() {
	if s.row != nil {
		s.clearRow()
		s.printer.live.remove(s.row)
		s.row = nil
	}
}

// show hands lines to the printer, or counts them as lost.
func (s *Splitter) show(lines []byte) {
	if s.opts.OnLines != nil {
		s.opts.OnLines(s.opts.Prefix, lines)
	}
	if s.fold.add(s, lines) || s.relays.relay(s, lines) {
		return
	}
	take := s.printer.take
	if s.patient {
		take = s.printer.takePatiently
	}
	for len(lines) > 0 {
		b := take(s.opts.Cancel)
		if b == nil {
			s.printer.lost.Add(max(1, countLines(lines)))
			return
		}
		b, lines = s.fill(b, lines)
		s.printer.put(b)
	}
}

// fill appends to b the lines that fit, at least one, and returns b and the remaining lines.
func (s *Splitter) fill(b, lines []byte) ([]byte, []byte) {
	for len(lines) > 0 {
		n := LineLen(lines)
		if len(b) > 0 && len(b)+len(s.opts.Prefix)+n+1 > maxBuffer {
			break
		}
		b = append(b, s.opts.Prefix...)
		b = s.appendLine(b, lines[:n])
		lines = lines[n:]
	}
	return b, lines
}

// LineLen returns the length of the first line with its newline, or the length of a piece of a very
// long line.
func LineLen(lines []byte) int {
	n := bytes.IndexByte(lines, '\n') + 1
	if n == 0 || n > maxLine+1 {
		return min(len(lines), maxLine)
	}
	return n
}

// appendLine appends a line, or a piece of a line, and a newline. If the line overwrites itself, it
// appends only the last text, also to pipes and files: the overwritten text would overwrite the
// prefix too when a terminal shows the file.
func (s *Splitter) appendLine(b, line []byte) []byte {
	if s.printer.sink.tty {
		return append(AppendVisible(b, bytes.TrimSuffix(line, []byte{'\n'}), true), '\n')
	}
	line = line[bytes.LastIndexByte(bytes.TrimRight(line, "\r\n"), '\r')+1:]
	b = append(b, line...)
	if line[len(line)-1] != '\n' {
		b = append(b, '\n')
	}
	return b
}
