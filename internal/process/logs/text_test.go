package logs

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/golaunch/golaunch/internal/testkit/pipetest"
)

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
			defer r.Close(pipetest.Soon(t))
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
