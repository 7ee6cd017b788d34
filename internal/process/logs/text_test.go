package logs

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzView holds that what is shown depends on the bytes alone, not on how they were read, that every piece is bounded, and that
// nothing is lost.
func FuzzView(f *testing.F) {
	f.Add([]byte("a\nb\n\nc"), uint16(1), uint8(1))
	f.Add([]byte("\n"), uint16(3), uint8(255))
	f.Add([]byte("long "), uint16(7), uint8(200))
	f.Add([]byte("x"), uint16(4096), uint8(128))
	f.Fuzz(func(t *testing.T, seed []byte, chunk uint16, times uint8) {
		in := bytes.Repeat(seed, 1+8*int(times))
		got, want := shownAs(t, in, 1+int(chunk)), cutLines(in)
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes read by %d: %d bytes shown, want %d", len(in), chunk, len(got), len(want))
		}
	})
}

// shownAs is what a view shows of text that comes in chunks.
func shownAs(t *testing.T, in []byte, chunk int) []byte {
	var out bytes.Buffer
	c := NewConsole(&out, writer(nil))
	v := view{lane: c.out, prefix: []byte("> ")}
	for part := range slices.Chunk(in, chunk) {
		feed(&v, string(part))
	}
	v.end()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// cutLines is the plain definition of what a view shows.
func cutLines(in []byte) []byte {
	var out []byte
	for line := range bytes.Lines(in) {
		line, _ = bytes.CutSuffix(line, []byte{'\n'})
		for len(line) > maxLine {
			out = fmt.Appendf(out, "> %s\n", line[:maxLine])
			line = line[maxLine:]
		}
		out = fmt.Appendf(out, "> %s\n", line)
	}
	return out
}

func TestViewCutsLongLines(t *testing.T) {
	for _, n := range []int{200_000, maxLine - 1, maxLine, maxLine + 1, 2*maxLine + 7} {
		for _, end := range []string{"", "\n", "\nrest"} {
			in := []byte("first\n" + strings.Repeat("x", n) + end)
			for _, chunk := range []int{9999, maxRead, len(in)} {
				if got, want := shownAs(t, in, chunk), cutLines(in); !bytes.Equal(got, want) {
					t.Errorf("%d bytes and %q read by %d: %d bytes shown, want %d", n, end, chunk, len(got), len(want))
				}
			}
		}
	}
}

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
		if got := string(appendVisible(nil, []byte(tt.in), true)); got != tt.colour {
			t.Errorf("%q with colour: %q, want %q", tt.in, got, tt.colour)
		}
		if got := string(appendVisible(nil, []byte(tt.in), false)); got != tt.plain {
			t.Errorf("%q: %q, want %q", tt.in, got, tt.plain)
		}
	}
}

func FuzzVisible(f *testing.F) {
	f.Add([]byte("\x1b[31mred\x1b[0m \x1b]0;t\a \xff\r"))
	f.Add([]byte("\x1b[31\x1b[1;2;3m\xc2\x9b"))
	f.Fuzz(func(t *testing.T, in []byte) {
		checkPlain(t, string(appendVisible(nil, in, false)), "\t")
		coloured := string(appendVisible(nil, in, true))
		for i, part := range strings.Split(coloured, "\x1b") {
			if i > 0 && sgr([]byte("\x1b"+part)) == 0 {
				t.Errorf("an escape that is no colour in %q", coloured)
			}
			checkPlain(t, part, "\t")
		}
	})
}

// checkPlain holds that text is safe to show.
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

func TestTail(t *testing.T) {
	numbers := func(from, to int) string {
		var lines []string
		for i := from; i <= to; i++ {
			lines = append(lines, fmt.Sprint("line ", i))
		}
		return strings.Join(lines, "\n")
	}
	x, y := strings.Repeat("x", 5000), strings.Repeat("y", 5000)
	for _, tt := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"no end", "a\nb", "a\nb"},
		{"few", numbers(1, 5) + "\n\n", numbers(1, 5)},
		{"many", numbers(1, 5000) + "\n", numbers(5000-tailLines+1, 5000)},
		{"long lines", x + "\n" + y + "\n", y},
		{"one long line", x + y, (x + y)[len(x+y)-tailBytes:]},
		{"escapes", "\x1b[31mred\x1b[0m\x1b[2J\xff\n", "red^[[2J�"},
		{"progress", "1%\r2%\r\nend\n", "2%\nend"},
		{"growing", strings.Repeat("\xff", tailBytes), strings.Repeat("�", tailBytes/3)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, chunk := range []int{1, 13, 4096, len(tt.in) + 1} {
				var got tail
				for part := range slices.Chunk([]byte(tt.in), chunk) {
					got.write(part)
				}
				if got := got.text(); got != tt.want {
					t.Errorf("by %d: %q, want %q", chunk, got, tt.want)
				}
			}
		})
	}
}

func TestTraceback(t *testing.T) {
	const stack = `Traceback (most recent call last):\n  File \"a.py\", line 3, in f\nRuntimeError: b\u001b[2Jad\n`
	for _, tt := range []struct{ name, in, want, err string }{
		{name: "no file"},
		{
			name: "torch",
			in: `{"message": {"message": "RuntimeError: bad", "extraInfo": {"py_callstack": "` + stack + `", "timestamp": "1763732640"},` +
				` "errorCode": 1}}`,
			want: "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\nRuntimeError: b^[[2Jad",
		},
		{name: "no stack", in: `{"message": {"message": "Signal 9 (SIGKILL)"}}`, want: "Signal 9 (SIGKILL)"},
		{name: "text", in: `{"message": "plain", "timestamp": 1763732640}`, want: "plain"},
		{name: "garbage", in: "\x00\xff{", err: "parse the error file of rank 4 on n1"},
		{name: "cut off", in: `{"message": {"message": "Runt`, err: "parse the error file"},
		{name: "another", in: `{"message": [1, 2]}`, err: "parse the error file"},
		{name: "empty", in: "{}", err: "parse the error file"},
		{name: "huge", in: strings.Repeat(" ", maxErrorFile+1), err: "not a file of at most"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRank(t, openDir(t, t.TempDir()), RankOptions{Rank: 4})
			defer r.Close(soon(t))
			if tt.in != "" {
				if err := os.WriteFile(r.ErrorFile(), []byte(tt.in), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := r.Traceback()
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%q, error %v", got, err)
			}
		})
	}
}

func FuzzTraceback(f *testing.F) {
	f.Add([]byte(`{"message": {"message": "m", "extraInfo": {"py_callstack": "s\n\u001b[2J"}}}`))
	f.Add([]byte(`{"message": "m"}`))
	f.Add([]byte(`{"message": {"extraInfo": 3}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, in []byte) {
		text, err := parseErrorFile(in)
		if err != nil && text != "" || len(text) > maxTraceback {
			t.Errorf("%d bytes, error %v", len(text), err)
		}
		checkPlain(t, text, "\t\n")
	})
}
