package ssh

import (
	"bufio"
	"io"
	"strings"
	"testing"
)

func TestGreeting(t *testing.T) {
	long := strings.Repeat("x", 10000)
	for _, c := range []struct{ text, before, rest string }{
		{greeting + "\nagent\n", "", "agent\n"},
		{"motd\r\n" + greeting + "\r\nagent", "", "agent"},
		{long + "\n" + greeting + "\nagent", "", "agent"},
		{"", "", ""},
		{"ssh: refused\r\n", "ssh: refused", ""},
		{"one\ntwo\n\nthree\nfour", "two; three; four", ""},
		{"\x1b]0;title\x07\xff" + long[:1000], "]0;title\ufffd" + long[:200-9], ""},
		{"before " + greeting + "\n", "before " + greeting, ""},
	} {
		r := bufio.NewReader(strings.NewReader(c.text))
		before, greeted := readGreeting(r)
		rest, err := io.ReadAll(r)
		if before != c.before || greeted != (before == "" && c.text != "") || string(rest) != c.rest || err != nil {
			t.Errorf("%.40q: before %q, greeted %v, rest %q", c.text, before, greeted, rest)
		}
	}
}
