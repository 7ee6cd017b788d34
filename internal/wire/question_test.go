package wire

import (
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/golaunch/golaunch/internal/host/samples"
	"github.com/golaunch/golaunch/internal/testkit/wiretest"
)

// TestSamplesArrive checks that what a node has measured arrives as it was, in messages that are
// small enough.
func TestSamplesArrive(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_123).UTC()
	var want []samples.Series
	for rank := -1; rank < 64; rank++ {
		s := samples.Series{Subject: samples.Subject{Job: "j7", Rank: rank}, State: wiretest.Filled[samples.State]()}
		for i := range 600 {
			at := samples.Sample{At: now.Add(-time.Duration(i) * time.Second), Attempt: i % 3, Values: samples.None()}
			at.Values[samples.CPU] = float64(i)
			if i > 300 {
				at.Values[samples.Step] = 1e9
			}
			s.Samples = append(s.Samples, at)
		}
		want = append(want, s)
	}
	var got []samples.Series
	messages := 0
	for m := range FromAnswer(Answer{Samples: &Samples{Now: now, Series: want}}) {
		if messages++; proto.Size(m) > MaxPiece+maxTimes*int(samples.Columns)*8 {
			t.Fatalf("a message has %d bytes", proto.Size(m))
		}
		for _, s := range ToAnswer(wiretest.Arrives(t, m)).Samples.Series {
			if n := len(got); n > 0 && got[n-1].Subject == s.Subject {
				got[n-1].Samples = append(got[n-1].Samples, s.Samples...)
			} else {
				got = append(got, s)
			}
		}
	}
	if len(got) != len(want) || messages < 2 {
		t.Fatalf("%d series in %d messages, want %d", len(got), messages, len(want))
	}
	for i := range want {
		same(t, got[i], want[i])
	}
}

// same compares series, where NaN equals NaN.
func same(t *testing.T, got, want samples.Series) {
	t.Helper()
	if got.Subject != want.Subject || got.State != want.State || len(got.Samples) != len(want.Samples) {
		t.Fatalf("got %+v %+v with %d samples", got.Subject, got.State, len(got.Samples))
	}
	for i, s := range want.Samples {
		if g := got.Samples[i]; !g.At.Equal(s.At) || g.Attempt != s.Attempt {
			t.Fatalf("sample %d is at %v of attempt %d, want %v of %d", i, g.At, g.Attempt, s.At, s.Attempt)
		}
		for c, v := range s.Values {
			if g := got.Samples[i].Values[c]; g != v && (!math.IsNaN(g) || !math.IsNaN(v)) {
				t.Fatalf("sample %d has %v of %v, want %v", i, g, samples.Column(c), v)
			}
		}
	}
}
