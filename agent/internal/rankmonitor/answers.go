package rankmonitor

import (
	"encoding/binary"
	"math"
	"time"
)

// answer is a pickle (protocol 2) that is being written. The first four bytes are its length.
type answer []byte

func newAnswer() answer { return answer("\x00\x00\x00\x00\x80\x02") }

func (a *answer) add(text string) { *a = append(*a, text...) }

// object adds an object of a class without fields.
func (a *answer) object(module, class string) {
	a.add("c" + ofNVRx + module + "\n" + class + "\n)\x81")
}

func (a *answer) text(text string) {
	a.add("X")
	*a = binary.LittleEndian.AppendUint32(*a, uint32(len(text)))
	a.add(text)
}

func (a *answer) float(n float64) {
	a.add("G")
	*a = binary.BigEndian.AppendUint64(*a, math.Float64bits(n))
}

// limit adds seconds, or None.
func (a *answer) limit(d time.Duration) {
	if d == 0 {
		a.add("N")
		return
	}
	a.float(d.Seconds())
}

func (a *answer) bool(b bool) {
	if b {
		a.add("\x88")
	} else {
		a.add("\x89")
	}
}

// frame ends the answer.
func (a *answer) frame() []byte {
	a.add(".")
	binary.BigEndian.PutUint32(*a, uint32(len(*a)-4))
	return *a
}

func okAnswer() []byte {
	a := newAnswer()
	a.object("data", "OkMsg")
	return a.frame()
}

// errorAnswer tells a client what is wrong.
func errorAnswer(cause string) []byte {
	a := newAnswer()
	a.object("data", "ErrorMsg")
	a.add("}")
	a.text("cause")
	a.text(cause)
	a.add("sb")
	return a.frame()
}

// takenAnswer is a launcher's answer to a request: b'ok', in protocol 3.
func takenAnswer() []byte { return []byte("\x00\x00\x00\x07\x80\x03C\x02ok.") }

// configAnswer gives a client its configuration. The client uses the defaults of its version for
// whatever the answer omits.
func configAnswer(c Config, l Limits, skip bool) []byte {
	a := newAnswer()
	a.object("data", "OkMsg")
	a.add("}")
	a.text("cfg")
	a.object("config", "FaultToleranceConfig")
	a.add("}(")
	a.text("initial_rank_heartbeat_timeout")
	a.limit(l.FirstHeartbeat)
	a.text("rank_heartbeat_timeout")
	a.limit(l.Heartbeat)
	a.text("rank_out_of_section_timeout")
	a.limit(l.OutOfSection)
	a.text("rank_section_timeouts")
	a.add("}(")
	for _, name := range l.names() {
		a.text(name)
		a.limit(l.Sections[name])
	}
	a.add("u")
	a.text("safety_factor")
	a.float(c.Safety)
	a.text("skip_section_response")
	a.bool(skip)
	a.text("install_exception_hook")
	a.bool(c.ExceptionHook)
	a.add("ubsb")
	return a.frame()
}
