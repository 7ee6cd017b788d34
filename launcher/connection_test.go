package launcher

import (
	"bufio"
	"io"
	"strings"
	"testing"
)

func TestGreeting(t *testing.T) {
	long := strings.Repeat("x", 10000)
	for _, c := range []struct{ text, said, rest string }{
		{greetingLine + "\nagent\n", "", "agent\n"},
		{"motd\r\n" + greetingLine + "\r\nagent", "", "agent"},
		{long + "\n" + greetingLine + "\nagent", "", "agent"},
		{"", "", ""},
		{"ssh: refused\r\n", "ssh: refused", ""},
		{"one\ntwo\n\nthree\nfour", "two; three; four", ""},
		{"\x1b]0;title\x07\xff" + long[:1000], "]0;title\ufffd" + long[:200-9], ""},
		{"before " + greetingLine + "\n", "before " + greetingLine, ""},
	} {
		r := bufio.NewReader(strings.NewReader(c.text))
		said, greeted := greeting(r)
		rest, err := io.ReadAll(r)
		if said != c.said || greeted != (said == "" && c.text != "") || string(rest) != c.rest || err != nil {
			t.Errorf("%.40q: said %q, greeted %v, rest %q", c.text, said, greeted, rest)
		}
	}
}
