package stacks

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// MaxEncoded bounds an encoded sample in bytes.
const MaxEncoded = 64 << 10

// compact is a Sample that holds each text once.
type compact struct {
	Sample
	Threads []compactThread `json:"threads,omitempty"`
	Texts   []string        `json:"texts,omitempty"`
}

// compactThread is a Thread whose frames are three numbers each: the indices of function and file
// among the texts, and the line.
type compactThread struct {
	Thread
	Frames []int `json:"frames,omitempty"`
}

// Encode writes a sample as JSON of at most [MaxEncoded] bytes. If the sample is too large, it
// drops first the last threads and then frames in the middle of stacks, and sets Cut.
func Encode(s Sample) ([]byte, error) {
	s.Name, s.Role, s.Missing = clean(s.Name), clean(s.Role), clipText(s.Missing)
	frames := maxFrames
	for {
		b, err := encode(s, frames)
		switch {
		case err != nil:
			return nil, fmt.Errorf("encode the stacks of process %d: %w", s.PID, err)
		case len(b) <= MaxEncoded:
			return b, nil
		case len(s.Threads) > 1:
			s.Threads = s.Threads[:len(s.Threads)/2]
		case frames > 2:
			frames /= 2
		default:
			return nil, fmt.Errorf("the stacks of process %d take %d bytes, of at most %d", s.PID, len(b), MaxEncoded)
		}
		s.Cut = true
	}
}

func clipText(text string) string { return text[:min(len(text), 4*maxName)] }

func encode(s Sample, frames int) ([]byte, error) {
	c := compact{Sample: s}
	places := make(map[string]int)
	place := func(text string) int {
		text = clean(text)
		at, ok := places[text]
		if !ok {
			at = len(c.Texts)
			places[text] = at
			c.Texts = append(c.Texts, text)
		}
		return at
	}
	for _, t := range s.Threads {
		ct := compactThread{Thread: t}
		ct.Name, ct.State, ct.Call, ct.Wait = clean(t.Name), clean(t.State), clean(t.Call), clean(t.Wait)
		for _, f := range clipped(t.Frames, frames) {
			ct.Frames = append(ct.Frames, place(f.Function), place(f.File), f.Line)
		}
		c.Cut = c.Cut || len(t.Frames) > frames
		c.Threads = append(c.Threads, ct)
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(c)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// Decode reads the output of [Encode] and refuses anything else.
func Decode(b []byte) (Sample, error) {
	s, err := decodeSample(b)
	if err != nil {
		return Sample{}, fmt.Errorf("read the stacks of a process: %w", err)
	}
	return s, nil
}

func decodeSample(b []byte) (Sample, error) {
	if len(b) > MaxEncoded {
		return Sample{}, fmt.Errorf("%d bytes, of at most %d", len(b), MaxEncoded)
	}
	var c compact
	if err := json.Unmarshal(b, &c); err != nil {
		return Sample{}, err
	}
	for i := range c.Texts {
		c.Texts[i] = clean(c.Texts[i])
	}
	s := c.Sample
	s.Name, s.Role, s.Python, s.Missing = clean(s.Name), clean(s.Role), clean(s.Python), visible(clipText(s.Missing))
	s.Threads = nil
	for _, ct := range c.Threads {
		t, err := ct.thread(c.Texts)
		if err != nil {
			return Sample{}, err
		}
		s.Threads = append(s.Threads, t)
	}
	return s, nil
}

func (ct compactThread) thread(texts []string) (Thread, error) {
	t := ct.Thread
	t.Name, t.State, t.Call, t.Wait = clean(t.Name), clean(t.State), clean(t.Call), clean(t.Wait)
	t.Frames = nil
	if len(ct.Frames)%3 != 0 || len(ct.Frames) > 3*(maxFrames+1) {
		return Thread{}, fmt.Errorf("%d numbers are no frames: each has 3, and there are %d at most", len(ct.Frames), maxFrames+1)
	}
	for f := ct.Frames; len(f) > 0; f = f[3:] {
		if f[0] < 0 || f[1] < 0 || f[0] >= len(texts) || f[1] >= len(texts) {
			return Thread{}, fmt.Errorf("there is no text %d or %d", f[0], f[1])
		}
		t.Frames = append(t.Frames, Frame{Function: texts[f[0]], File: texts[f[1]], Line: bounded(f[2])})
	}
	return t, nil
}
