package hostlist

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// scanner reads a list from the front.
type scanner struct {
	text string
	pos  int
	// count is the number of names so far, or some number above Max if there are more.
	count int
}

func (s *scanner) hosts() ([]host, error) {
	var list []host
	for {
		h, err := s.host()
		if err != nil {
			return nil, err
		}
		list = append(list, h)
		if s.pos == len(s.text) {
			return list, nil
		}
		s.pos++
	}
}

// host reads up to a comma or the end.
func (s *scanner) host() (host, error) {
	start, length := s.pos, 0
	h := host{count: 1}
	for {
		part := s.plain()
		h.parts = append(h.parts, part)
		length += len(part)
		if s.next() != '[' {
			break
		}
		spans, err := s.brackets()
		if err != nil {
			return host{}, err
		}
		h.groups, h.parts = append(h.groups, spans), append(h.parts, "")
		count, longest := 0, 0
		for _, sp := range spans {
			count, longest = min(count+sp.count(), Max+1), max(longest, sp.longest())
		}
		h.count, length = min(h.count*count, Max+1), length+longest
	}
	s.count += h.count
	return h, s.check(start, length)
}

// check checks the host from start on. Its longest name has the given length.
func (s *scanner) check(start, length int) error {
	switch c := s.next(); {
	case c == ']':
		return s.errorf(s.pos, "] without [")
	case c != ',':
		r, _ := utf8.DecodeRuneInString(s.text[s.pos:])
		return s.errorf(s.pos, "%q in a host name; want letters, digits, '.', '_' and '-'", r)
	case start == s.pos:
		return s.errorf(start, "a host name is missing")
	case s.text[start] == '.' || s.text[start] == '-':
		return s.errorf(start, "a host name cannot begin with %q", s.text[start])
	case length > maxName:
		return s.errorf(start, "a host name of %d bytes; at most %d are possible", length, maxName)
	case s.count > Max:
		return s.errorf(start, "more than %d hosts", Max)
	}
	return nil
}

// next is the next byte; at the end of the list it is a comma.
func (s *scanner) next() byte {
	if s.pos == len(s.text) {
		return ','
	}
	return s.text[s.pos]
}

// plain reads characters of a host name outside of brackets.
func (s *scanner) plain() string {
	start := s.pos
	for isPlain(s.next()) {
		s.pos++
	}
	return s.text[start:s.pos]
}

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// brackets reads the text between [ and ].
func (s *scanner) brackets() ([]span, error) {
	length := strings.IndexAny(s.text[s.pos+1:], "[]")
	switch {
	case length < 0:
		return nil, s.errorf(s.pos, "[ without ]")
	case s.text[s.pos+1+length] == '[':
		return nil, s.errorf(s.pos+1+length, "[ within [ ]")
	}
	s.pos++
	inside := s.text[s.pos : s.pos+length]
	spans := make([]span, 0, 1+strings.Count(inside, ","))
	for text := range strings.SplitSeq(inside, ",") {
		sp, err := s.span(text)
		if err != nil {
			return nil, err
		}
		spans = append(spans, sp)
		s.pos += len(text) + 1
	}
	return spans, nil
}

// span reads a number or a range.
func (s *scanner) span(text string) (span, error) {
	first, last, ranged := strings.Cut(text, "-")
	if !ranged {
		last = first
	}
	low, err := strconv.ParseUint(first, 10, 64)
	high, err2 := strconv.ParseUint(last, 10, 64)
	switch {
	case text == "":
		return span{}, s.errorf(s.pos, "a number is missing")
	case err != nil || err2 != nil:
		return span{}, s.errorf(s.pos, "%s is not a number or a range such as 1-8, below 2^64", quote(text))
	case low > high:
		return span{}, s.errorf(s.pos, "the range %s goes down; want the smaller number first", quote(text))
	}
	return span{low, high, len(first)}, nil
}

// errorf returns an error about a byte of the list.
func (s *scanner) errorf(pos int, format string, args ...any) error {
	return fmt.Errorf("host list %s, byte %d: %s", quote(s.text), pos+1, fmt.Sprintf(format, args...))
}

// quote makes an error short, in one line.
func quote(text string) string {
	const shown = 60 // bytes
	if len(text) <= shown {
		return strconv.Quote(text)
	}
	return strconv.Quote(text[:shown]) + "..."
}
