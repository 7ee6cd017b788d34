package fold

import (
	"bytes"
	"math"
	"strconv"
)

// number adds the value that begins with the digit at a place, and returns where it ends.
func (s *scanner) number(at int) int {
	if s.class(at-1) == letter {
		return s.value(Integer, 0, at, s.digits(at))
	}
	if end := s.moment(at); end > at {
		return s.value(Moment, 0, at, end)
	}
	if s.is(at, '0') && (s.is(at+1, 'x') || s.is(at+1, 'X')) {
		if end := s.hex(at + 2); end > at+2 && s.class(end) == other {
			return s.value(s.hexKind(end-at-2), 0, at, end)
		}
	}
	if s.is(at+8, '-') && s.uuid(at) {
		return s.value(Name, 0, at, at+uuidLen)
	}
	begin, end, kind := s.decimal(at)
	if s.class(end) == letter || s.is(end, 0xc2) {
		if unit, to := s.unit(end); unit != 0 {
			return s.value(Number, unit, begin, to)
		}
		if s.name(s.run(at)) {
			return s.done
		}
	}
	return s.value(kind, 0, begin, end)
}

// hexKind distinguishes a memory address, which differs by nature, from a number that was written
// in hexadecimal on purpose.
func (s *scanner) hexKind(digits int) Kind {
	if digits >= 6 {
		return Address
	}
	return Name
}

func (s *scanner) digits(i int) int {
	for s.class(i) == digit {
		i++
	}
	return i
}

func (s *scanner) hex(i int) int {
	for i < len(s.text) && isHex(s.text[i]) {
		i++
	}
	return i
}

// decimal returns where the number around a digit begins and ends. Text with two points, such as an
// address or a version, counts as several integers.
func (s *scanner) decimal(at int) (begin, end int, kind Kind) {
	begin, end, kind = at, s.digits(at), Integer
	switch {
	case at > s.done && s.is(at-1, '.') && !s.joined(at-2):
		begin, kind = at-1, Number
	case at >= s.done && s.is(at-1, '.') && s.class(at-2) == digit:
		return at, end, Integer
	case s.is(end, '.') && s.class(end+1) == digit:
		point := s.digits(end + 1)
		if s.is(point, '.') && s.class(point+1) == digit {
			return at, end, Integer
		}
		end, kind = point, Number
	case s.is(end, '.') && (s.is(end+1, ',') || s.is(end+1, ']') || s.is(end+1, ')')):
		end, kind = end+1, Number
	}
	if power := s.exponent(end); power > end {
		end, kind = power, Number
	}
	if begin > s.done && (s.is(begin-1, '-') || s.is(begin-1, '+')) && !s.joined(begin-2) {
		begin--
	}
	return begin, end, kind
}

// joined reports whether the byte at a place makes a sign or a point after it part of a word, a
// path or a range.
func (s *scanner) joined(at int) bool {
	if at < 0 {
		return false
	}
	c := s.text[at]
	return classes[c] != other || c >= 0x80 || bytes.IndexByte([]byte(".-+/_)]"), c) >= 0
}

func (s *scanner) exponent(at int) int {
	if !s.is(at, 'e') && !s.is(at, 'E') {
		return at
	}
	from := at + 1
	if s.is(from, '-') || s.is(from, '+') {
		from++
	}
	if end := s.digits(from); end > from && s.class(end) == other {
		return end
	}
	return at
}

// unit returns the quantity that the suffix of a number measures, or 0 without a suffix, and where
// the suffix ends. A duration may have several parts: 1h2m3s.
func (s *scanner) unit(at int) (byte, int) {
	for first := byte(0); ; {
		end := at
		if s.is(end, 0xc2) && s.is(end+1, 0xb5) {
			end += 2
		}
		for s.class(end) == letter {
			end++
		}
		unit, _ := measure(s.text[at:end])
		if unit == 0 || first != 0 && unit != 't' {
			return 0, at
		}
		if s.class(end) == other {
			return unit, end
		}
		if unit != 't' {
			return 0, at
		}
		first = unit
		if at = s.digits(end); s.is(at, '.') {
			at = s.digits(at + 1)
		}
	}
}

// measure returns the quantity that a suffix measures ('t' for time in seconds, 'b' for bytes or
// 'n' for a number), and how much one unit is.
func measure(suffix []byte) (unit byte, one float64) {
	switch string(suffix) {
	case "ns":
		return 't', 1e-9
	case "us", "\u00b5s":
		return 't', 1e-6
	case "ms":
		return 't', 1e-3
	case "s", "sec", "secs", "seconds":
		return 't', 1
	case "m", "min", "mins":
		return 't', 60
	case "h":
		return 't', 3600
	case "d":
		return 't', 86400
	case "B":
		return 'b', 1
	case "kB", "KB":
		return 'b', 1e3
	case "MB":
		return 'b', 1e6
	case "GB":
		return 'b', 1e9
	case "TB":
		return 'b', 1e12
	case "KiB":
		return 'b', 1 << 10
	case "MiB":
		return 'b', 1 << 20
	case "GiB":
		return 'b', 1 << 30
	case "TiB":
		return 'b', 1 << 40
	case "k", "K":
		return 'n', 1e3
	case "M":
		return 'n', 1e6
	case "G":
		return 'n', 1e9
	case "T":
		return 'n', 1e12
	}
	return 0, 0
}

// moment returns the end of a date, a time of day or a progress bar's duration that begins at a
// place. It returns the place itself if there is none.
func (s *scanner) moment(at int) int {
	if s.is(at-1, ':') {
		return at
	}
	switch run := s.digits(at) - at; {
	case run == 4 && (s.is(at+4, '-') || s.is(at+4, '/')) && s.two(at+5) && s.is(at+7, s.text[at+4]) && s.two(at+8):
		date := at + 10
		if s.is(date, 'T') || s.is(date, ' ') {
			if end := s.clock(date+1, s.digits(date+1)); end > 0 {
				return end
			}
		}
		if s.class(date) == other {
			return date
		}
	case run == 1 || run == 2:
		if end := s.clock(at, at+run); end > 0 {
			return end
		}
		if end := at + run + 3; (s.is(at-1, '[') || s.is(at-1, '<')) && s.is(at+run, ':') && s.two(at+run+1) && !s.is(end, ':') {
			return end
		}
	}
	return at
}

// two reports whether exactly two digits stand at a place.
func (s *scanner) two(at int) bool { return s.class(at) == digit && s.digits(at) == at+2 }

// clock returns the end of hours, minutes and seconds with a fraction and a zone; 0 if there is no
// such time.
func (s *scanner) clock(at, hours int) int {
	if hours <= at || hours > at+2 || !s.is(hours, ':') || !s.two(hours+1) || !s.is(hours+3, ':') || !s.two(hours+4) {
		return 0
	}
	end := hours + 6
	if (s.is(end, '.') || s.is(end, ',')) && s.class(end+1) == digit {
		end = s.digits(end + 1)
	}
	if s.is(end, 'Z') {
		end++
	} else if (s.is(end, '+') || s.is(end, '-')) && s.two(end+1) && s.is(end+3, ':') && s.two(end+4) {
		end += 6
	}
	if s.class(end) != other {
		return 0
	}
	return end
}

// amount returns a number that orders the values of a kind. It is in seconds or bytes if the value
// has such a unit. Names have no amount.
func amount(kind Kind, text []byte) float64 {
	switch kind {
	case Integer:
		if n, ok := small(text); ok {
			return n
		}
		return parse(text)
	case Number:
		return quantity(text)
	case Moment:
		return digitsOf(text)
	case Address:
		n, err := strconv.ParseUint(string(text[2:min(len(text), 18)]), 16, 64)
		if err != nil {
			return 0
		}
		return float64(n)
	}
	return 0
}

func digitsOf(text []byte) (n float64) {
	for _, c := range text {
		if classes[c] == digit {
			n = 10*n + float64(c-'0')
		}
	}
	return n
}

// quantity adds up the parts of a number with units.
func quantity(text []byte) (sum float64) {
	for len(text) > 0 {
		end := numberEnd(text)
		n := parse(text[:end])
		text = text[end:]
		end = 0
		for end < len(text) && classes[text[end]] != digit {
			end++
		}
		if unit, one := measure(text[:end]); unit != 0 {
			n *= one
		}
		sum += n
		text = text[end:]
	}
	return sum
}

// numberEnd is where the number at the start of a text ends; at least 1.
func numberEnd(text []byte) int {
	i := 1
	for ; i < len(text); i++ {
		c := text[i]
		power := (c == 'e' || c == 'E') && i+1 < len(text) && classes[text[i+1]] != letter
		sign := (c == '-' || c == '+') && text[i-1]|0x20 == 'e'
		if classes[c] != digit && c != '.' && !power && !sign {
			break
		}
	}
	return i
}

var powers = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// small is the value of a decimal of at most 15 digits, exactly as strconv parses it: the quotient
// of two exact numbers.
func small(text []byte) (float64, bool) {
	n, places, negative := uint64(0), -1, false
	if len(text) > 16 {
		return 0, false
	}
	for i, c := range text {
		switch {
		case classes[c] == digit:
			n = 10*n + uint64(c-'0')
			if places >= 0 {
				places++
			}
		case c == '.' && places < 0:
			places = 0
		case (c == '-' || c == '+') && i == 0:
			negative = c == '-'
		default:
			return 0, false
		}
	}
	if n >= 1e15 {
		return 0, false
	}
	value := float64(n)
	if places > 0 {
		value /= powers[min(places, len(powers)-1)]
	}
	if negative {
		value = -value
	}
	return value, true
}

// parse returns the value of a decimal, or the largest float64 if the value is too large.
func parse(text []byte) float64 {
	if n, ok := small(text); ok {
		return n
	}
	n, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return max(-math.MaxFloat64, min(n, math.MaxFloat64))
	}
	return n
}
