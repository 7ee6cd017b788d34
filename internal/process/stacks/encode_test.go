package stacks

import (
	"reflect"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// cleaned returns a sample as it is after Encode and Decode.
func cleaned(s Sample) Sample {
	s.Missing = visible(s.Missing)
	var threads []Thread
	for _, t := range s.Threads {
		t.Name = clean(t.Name)
		var frames []Frame
		for _, f := range t.Frames {
			frames = append(frames, Frame{clean(f.Function), clean(f.File), f.Line})
		}
		t.Frames = frames
		threads = append(threads, t)
	}
	s.Threads = threads
	return s
}

func TestAnyEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := sample().Draw(t, "sample")
		b, err := Encode(s)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Decode(b); err != nil || !reflect.DeepEqual(got, cleaned(s)) {
			t.Fatalf("%+v becomes %s, and that %+v: %v", s, b, got, err)
		}
	})
}

// TestLargestSample has a sample with the largest number of everything, and no two equal texts.
func TestLargestSample(t *testing.T) {
	n := 0
	text := func() string {
		n++
		return strings.Repeat("\u2028\\\x01<", maxName/4) + strconv.Itoa(n)
	}
	s := Sample{Name: text(), Role: text(), Missing: strings.Repeat(text(), 10)}
	for range maxThreads {
		th := Thread{Name: text(), Call: text(), Wait: text()}
		for range maxFrames {
			th.Frames = append(th.Frames, Frame{text(), text(), 1 << 30})
		}
		s.Threads = append(s.Threads, th)
	}
	b, err := Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Cut || len(b) > MaxEncoded || len(b) < MaxEncoded/4 || len(got.Threads) == 0 {
		t.Errorf("it takes %d bytes for %d threads (cut: %v)", len(b), len(got.Threads), got.Cut)
	}
	calls := 0
	for _, f := range got.Threads[0].Frames {
		calls += f.count()
	}
	if calls != maxFrames {
		t.Errorf("its frames stand for %d calls, not %d", calls, maxFrames)
	}
	if len(s.Threads) != maxThreads || len(s.Threads[0].Frames) != maxFrames {
		t.Error("what was encoded has changed")
	}
}

func TestDecode(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                            "read the stacks of a process: unexpected end of JSON input",
		`{"threads":[{"frames":[1]}]}`: "1 numbers are no frames: each has 3, and there are 193 at most",
		`{"threads":[{"frames":[0,0,1]}],"texts":[]}`:     "there is no text 0 or 0",
		`{"threads":[{"frames":[0,-1,1]}],"texts":["a"]}`: "there is no text 0 or -1",
		strings.Repeat(" ", MaxEncoded+1):                 "65537 bytes, of at most 65536",
	} {
		if _, err := Decode([]byte(text)); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%.50s is read with %v, not %s", text, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range job() {
		b, err := Encode(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Decode(b)
		if err != nil {
			return
		}
		if err := Merge([]Sample{s, s}, MergeOptions{Waits: true}).Text(&strings.Builder{}, 80); err != nil {
			t.Error(err)
		}
		again, err := Encode(s)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Decode(again); err != nil || !got.Cut && !reflect.DeepEqual(got, s) {
			t.Errorf("%+v becomes %+v: %v", s, got, err)
		}
	})
}

func FuzzSpy(f *testing.F) {
	f.Add([]byte(`[{"os_thread_id":1,"owns_gil":true,"frames":[{"name":"f","filename":"a.py","line":3}]}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		threads, _, err := parseSpy(text, 1)
		if len(threads) > maxThreads || err != nil && threads != nil {
			t.Errorf("there are %d threads: %v", len(threads), err)
		}
	})
}
