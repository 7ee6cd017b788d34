package console

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestVisible(t *testing.T) {
	for _, tt := range []struct{ in, colour, plain string }{
		{"plain\ttext é 世", "plain\ttext é 世", "plain\ttext é 世"},
		{"\x1b[1;31mred\x1b[m", "\x1b[1;31mred\x1b[m\x1b[0m", "red"},
		{"\x1b[38:5:1mx", "\x1b[38:5:1mx\x1b[0m", "x"},
		{"\x1b[2J\x1b[H", "^[[2J^[[H", "^[[2J^[[H"},
		{"\x1b", "^[", "^["},
		{"\x1b[31", "^[[31", "^[[31"},
		{"\x1b[" + strings.Repeat("1;", 40) + "m", "^[[" + strings.Repeat("1;", 40) + "m", "^[[" + strings.Repeat("1;", 40) + "m"},
		{"\a\b\x00\x7f", "^G^H^@^?", "^G^H^@^?"},
		{"\u009b31m", "�31m", "�31m"},
		{"\x9b31m\xff", "�31m�", "�31m�"},
		{"10%\r20%\r30%", "30%", "30%"},
		{"dos\r", "dos", "dos"},
	} {
		if got := string(AppendVisible(nil, []byte(tt.in), true)); got != tt.colour {
			t.Errorf("%q with colour: %q, want %q", tt.in, got, tt.colour)
		}
		if got := string(AppendVisible(nil, []byte(tt.in), false)); got != tt.plain {
			t.Errorf("%q: %q, want %q", tt.in, got, tt.plain)
		}
	}
}

func FuzzVisible(f *testing.F) {
	f.Add([]byte("\x1b[31mred\x1b[0m \x1b]0;t\a \xff\r"))
	f.Add([]byte("\x1b[31\x1b[1;2;3m\xc2\x9b"))
	f.Fuzz(func(t *testing.T, in []byte) {
		checkPlain(t, string(AppendVisible(nil, in, false)), "\t")
		coloured := string(AppendVisible(nil, in, true))
		for i, part := range strings.Split(coloured, "\x1b") {
			if i > 0 && sgrLen([]byte("\x1b"+part)) == 0 {
				t.Errorf("an escape that is no colour in %q", coloured)
			}
			checkPlain(t, part, "\t")
		}
	})
}

// checkPlain checks that text is safe to show.
func checkPlain(t *testing.T, text, but string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("not UTF-8: %q", text)
	}
	for _, r := range text {
		if unicode.IsControl(r) && !strings.ContainsRune(but, r) {
			t.Errorf("control character %q in %q", r, text)
		}
	}
}
