package console

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// FuzzView checks that output depends on the bytes and not on the reads, that pieces are bounded,
// and that nothing is lost.
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

// shownAs returns the output of a splitter for a text that is read in chunks.
func shownAs(t *testing.T, in []byte, chunk int) []byte {
	var out bytes.Buffer
	c := New(&out, writer(nil))
	v := Splitter{printer: c.out, opts: SplitOptions{Prefix: "> "}}
	for part := range slices.Chunk(in, chunk) {
		feed(&v, string(part))
	}
	v.End()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// cutLines is the plain definition of a splitter's output.
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
			for _, chunk := range []int{9999, MaxRead, len(in)} {
				if got, want := shownAs(t, in, chunk), cutLines(in); !bytes.Equal(got, want) {
					t.Errorf("%d bytes and %q read by %d: %d bytes shown, want %d", n, end, chunk, len(got), len(want))
				}
			}
		}
	}
}

// TestAMovingBar: a progress bar that never stops is shown now and then, in bounded memory.
func TestAMovingBar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		c := New(&out, &out)
		v := Splitter{printer: c.printer(Stdout), opts: SplitOptions{Prefix: "[0] "}}
		for update := range 250 {
			v.Add(copy(v.Buffer(), fmt.Sprintf("\r%d of 250", update)))
			time.Sleep(partialAfter / 10)
			if at := v.PartialAt(); !time.Now().Before(at) {
				v.ShowPartial()
			}
		}
		v.End()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if got, want := out.String(), "[0] 99 of 250\n[0] 199 of 250\n"; !strings.HasPrefix(got, want) || len(v.buf) > 2*MaxRead {
			t.Errorf("%q, want %q and the rest, with a buffer of %d bytes", got, want, len(v.buf))
		}
	})
}

// TestBarsInAPipe: each line shows its last text behind the prefix.
func TestBarsInAPipe(t *testing.T) {
	for in, want := range map[string]string{
		"\r10%\r20%\n":         "[0] 20%\n",
		"10%\r20%\r\n":         "[0] 20%\r\n",
		"dos\r\nline\r\n":      "[0] dos\r\n[0] line\r\n",
		"a\n\r10%\r20%":        "[0] a\n[0] 20%\n",
		"\r10%\r20%\nb\r30%\n": "[0] 20%\n[0] 30%\n",
	} {
		for cut := range len(in) + 1 {
			var out strings.Builder
			c := New(&out, &out)
			v := Splitter{printer: c.printer(Stdout), opts: SplitOptions{Prefix: "[0] "}}
			for _, piece := range []string{in[:cut], in[cut:]} {
				v.Add(copy(v.Buffer(), piece))
			}
			v.End()
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if out.String() != want {
				t.Errorf("%q, cut at %d: %q, want %q", in, cut, out.String(), want)
			}
		}
	}
}

// feed gives text to a splitter in reads as large as it takes.
func feed(s *Splitter, text string) {
	for r := strings.NewReader(text); r.Len() > 0; {
		n, _ := r.Read(s.Buffer())
		s.Add(n)
	}
}
