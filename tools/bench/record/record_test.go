package record

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestWriteAndRead(t *testing.T) {
	r := &Record{
		FormatVersion: Version, Began: time.Date(2026, 11, 24, 6, 0, 0, 0, time.UTC), TookSeconds: 3, Machine: Machine{CPU: `a "CPU"`, Cores: 2, Load: 0.5},
		Peers: []Peer{{Golaunch, "1"}, {Mpirun, "2"}}, Skipped: []Skipped{}, Sections: []Section{{Name: "launch", Rounds: 1, TookSeconds: 2, Load: 0.25}},
	}
	s := r.Add("launch-1", Golaunch, "golaunch")
	s.Samples = append(s.Samples, 3.25, 1)
	r.Add("launch-1", Mpirun, "mpirun").Failed++
	file := filepath.Join(t.TempDir(), "peers.json")
	if err := r.Write(file); err != nil {
		t.Fatal(err)
	}
	got, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, r) {
		t.Errorf("read was %+v, not %+v", got, r)
	}
	text, err := r.text()
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines != 18 {
		t.Errorf("%d lines:\n%s", lines, text)
	}
	r.FormatVersion++
	if err := r.Write(file); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(file); err == nil {
		t.Error("another format is read")
	}
}

func TestRenew(t *testing.T) {
	made := func(began time.Time, section string, works ...string) *Record {
		r := &Record{Began: began, Sections: []Section{{Name: section, Rounds: 1}}}
		for _, w := range works {
			r.Add(w, Golaunch, "golaunch").Samples = []float64{float64(began.Unix())}
		}
		return r
	}
	r := made(time.Unix(1, 0), "launch", "launch-1", "launch-8")
	r.Renew(made(time.Unix(2, 0), "store", "store-1000"))
	r.Renew(made(time.Unix(3, 0), "store", "store-1000"))
	if got := r.Sections; len(got) != 2 || !got[0].Renewed.IsZero() || got[1].Renewed != time.Unix(3, 0) {
		t.Errorf("%+v", got)
	}
	for work, want := range map[string]float64{"launch-1": 1, "launch-8": 1, "store-1000": 3} {
		if s := r.Of(work, Golaunch); s == nil || s.Samples[0] != want {
			t.Errorf("%s is %+v", work, s)
		}
	}
	if len(r.Series) != 3 {
		t.Errorf("%d series", len(r.Series))
	}
}

func TestSpread(t *testing.T) {
	samples := []float64{4, 1, 3, 2}
	if lowest, median, highest := Spread(samples); lowest != 1 || median != 2.5 || highest != 4 {
		t.Errorf("%v %v %v", lowest, median, highest)
	}
	if samples[0] != 4 {
		t.Error("the samples are in another order now")
	}
}

// TestGroups checks that each work is in exactly one group.
func TestGroups(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range Groups {
		for _, w := range g.Works {
			if seen[w.ID] {
				t.Errorf("%s is in two groups", w.ID)
			}
			seen[w.ID] = true
		}
	}
}
