package wire

import (
	"math"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/golaunch/golaunch/internal/testkit/wiretest"
	"github.com/golaunch/golaunch/launcher/report"
)

// TestSamplesArrive checks that a node's samples arrive unchanged, in messages that are small
// enough.
func TestSamplesArrive(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_123).UTC()
	var want []report.Series
	for rank := -1; rank < 64; rank++ {
		s := report.Series{Job: "j7", Rank: rank, LocalRank: 1, PID: 2, GPU: "GPU-3", Does: "running"}
		if rank%2 == 1 {
			s.Exit = new(wiretest.Filled[report.Exit]())
		}
		for i := range 600 {
			at := report.Sample{At: now.Add(-time.Duration(i) * time.Second), Attempt: i % 3, Usage: report.Unmeasured()}
			at.CPUs = float64(i)
			if i > 300 {
				at.Step = 1e9
			}
			s.Samples = append(s.Samples, at)
		}
		want = append(want, s)
	}
	var got []report.Series
	messages := 0
	for m := range FromAnswer(Answer{Samples: &Samples{Now: now, Series: want}}) {
		if messages++; proto.Size(m) > MaxPiece+maxTimes*numColumns*8 {
			t.Fatalf("a message has %d bytes", proto.Size(m))
		}
		for _, s := range ToAnswer(wiretest.Arrives(t, m)).Samples.Series {
			if n := len(got); n > 0 && got[n-1].Rank == s.Rank {
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

// same compares series, and treats NaN as equal to NaN.
func same(t *testing.T, got, want report.Series) {
	t.Helper()
	g, w := got, want
	g.Samples, w.Samples = nil, nil
	if !reflect.DeepEqual(g, w) || len(got.Samples) != len(want.Samples) {
		t.Fatalf("got %+v with %d samples", g, len(got.Samples))
	}
	for i, s := range want.Samples {
		g := got.Samples[i]
		if !g.At.Equal(s.At) || g.Attempt != s.Attempt {
			t.Fatalf("sample %d is at %v of attempt %d, want %v of %d", i, g.At, g.Attempt, s.At, s.Attempt)
		}
		for c, v := range columns(&s.Usage) {
			if g := *columns(&g.Usage)[c]; g != *v && (!math.IsNaN(g) || !math.IsNaN(*v)) {
				t.Fatalf("sample %d has %v in column %d, want %v", i, g, c, *v)
			}
		}
	}
}

// TestColumns checks that each quantity of a Usage has a column of its own.
func TestColumns(t *testing.T) {
	u := report.Unmeasured()
	for c, v := range columns(&u) {
		if !math.IsNaN(*v) {
			t.Errorf("column %d is not unmeasured, or is twice there: %v", c, *v)
		}
		*v = float64(c)
	}
	if n := reflect.TypeFor[report.Usage]().NumField(); n != numColumns {
		t.Errorf("%d columns of %d quantities", numColumns, n)
	}
}
