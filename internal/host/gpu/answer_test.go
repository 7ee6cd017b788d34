package gpu

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func TestAnswersPassTheirLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Custom(anyReading), 0, 20).Draw(t, "readings")
		text, err := json.Marshal(newAnswer(want, "", nil))
		if err != nil {
			t.Fatal(err)
		}
		a, err := parseAnswer(text)
		// The test compares texts by %v, in which NaN equals NaN.
		if got := a.readings(); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("got %v (%v), want %v", got, err, want)
		}
	})
}

func anyReading(t *rapid.T) Reading {
	use := rapid.OneOf(rapid.Just(math.NaN()), rapid.Float64Range(0, 1)).Draw(t, "use")
	total := rapid.Int64Range(0, math.MaxInt64).Draw(t, "total")
	return Reading{
		UUID: rapid.String().Draw(t, "uuid"), Use: use, Memory: rapid.Int64Range(0, total).Draw(t, "memory"), MemoryTotal: total,
		Power: rapid.Uint64().Draw(t, "power"), PowerLimit: rapid.Uint64().Draw(t, "limit"),
		Temperature: rapid.IntRange(0, 200).Draw(t, "temperature"),
		Holders:     rapid.SliceOfN(rapid.Custom(anyHolder), 0, maxHolders).Draw(t, "holders"),
	}
}

func anyHolder(t *rapid.T) Holder {
	return Holder{rapid.IntRange(1, 1<<22).Draw(t, "pid"), rapid.Int64Range(-1, math.MaxInt64).Draw(t, "bytes")}
}

// The answer of the largest machine fits: 16 GPUs in 7 instances each.
func TestLargestAnswer(t *testing.T) {
	largest, holders := make([]Reading, 16*7), make([]Holder, maxHolders)
	for i := range holders {
		holders[i] = Holder{math.MaxInt32, math.MaxInt64}
	}
	for i := range largest {
		largest[i] = Reading{
			UUID: fmt.Sprintf("%096d", i), Use: 1. / 3, Memory: math.MaxInt64, MemoryTotal: math.MaxInt64,
			Power: math.MaxUint64, PowerLimit: math.MaxUint64, Temperature: math.MaxInt, Holders: holders,
		}
	}
	text, err := json.Marshal(newAnswer(largest, "", nil))
	if err != nil || len(text) > maxReport/5 {
		t.Errorf("%d bytes (%v), want less than a fifth of %d", len(text), err, maxReport)
	}
}

// Any output of a child is parsed as readings or an error, always in the same way.
func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte(`{"Readings":[{"UUID":"GPU-0f","Use":0.5,"Memory":1},{"Use":null}],"Why":"","Err":""}`))
	f.Add([]byte(`{"Why":"none"}`))
	f.Add([]byte(`{"Err":"Fault"}`))
	f.Add([]byte("no protocol specified"))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := parseAnswer(text)
		if err != nil {
			if !reflect.DeepEqual(a, answer{}) {
				t.Fatalf("both %v and %v", a, err)
			}
			return
		}
		again, err := json.Marshal(newAnswer(a.readings(), a.Why, nil))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := parseAnswer(again); err != nil || b.Why != a.Why || fmt.Sprint(b.readings()) != fmt.Sprint(a.readings()) {
			t.Fatalf("%s: got %v (%v), want %v", text, b, err, a)
		}
	})
}
