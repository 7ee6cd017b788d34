package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/tools/bench/record"
)

// TestDocuments checks that the plots and the tables of the documents agree with the measurements.
func TestDocuments(t *testing.T) {
	files, err := render("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("../../..", name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what docs/performance/peers.json says (%v): go run -C tools/bench ./plot", name, err)
		}
	}
	left, err := filepath.Glob("../../../" + plots + "/*.svg")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range left {
		if files[filepath.Join(plots, filepath.Base(file))] == nil {
			t.Errorf("nothing makes %s any more", file)
		}
	}
}

// TestPlots checks that each plot is small, valid XML, and has a text for readers who cannot see
// it.
func TestPlots(t *testing.T) {
	files, err := render("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if !strings.HasSuffix(name, ".svg") {
			continue
		}
		if len(text) > 20<<10 {
			t.Errorf("%s has %d bytes", name, len(text))
		}
		if !bytes.Contains(text, []byte("<title id=")) || !bytes.Contains(text, []byte("Medians. ")) || bytes.Contains(text, []byte("NaN")) {
			t.Errorf("%s has no text, or places that are no numbers", name)
		}
		d := xml.NewDecoder(bytes.NewReader(text))
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
		err = nil
	}
}

func TestSay(t *testing.T) {
	for _, c := range []struct {
		value float64
		unit  record.Unit
		want  string
	}{
		{0, record.Milliseconds, "0 ms"},
		{9.876, record.Milliseconds, "9.88 ms"},
		{13.04, record.Milliseconds, "13.0 ms"},
		{999.4, record.Milliseconds, "999 ms"},
		{2151, record.Milliseconds, "2.15 s"},
		{100000, record.Milliseconds, "100 s"},
		{18.2e6, record.Bytes, "18.2 MB"},
		{1.581e9, record.Bytes, "1.58 GB"},
		{6800, record.Bytes, "6.80 kB"},
		{0, record.Processes, "0"},
		{0.5, record.Processes, "0.50"},
	} {
		if got := say(c.value, c.unit); got != c.want {
			t.Errorf("%v %s is shown as %s, not %s", c.value, c.unit, got, c.want)
		}
	}
}

func TestAxis(t *testing.T) {
	for _, c := range []struct{ lowest, highest, low, high float64 }{
		{13, 2151, 10, 10000}, {13, 18, 0, 20}, {0, 32, 0, 40}, {0, 0, 0, 1e-9},
	} {
		if a := newAxis(c.lowest, c.highest); a.low != c.low || (a.high-c.high) > 1e-12 || a.high <= 0 && c.highest > 0 {
			t.Errorf("values from %v to %v are shown from %v to %v", c.lowest, c.highest, a.low, a.high)
		}
	}
}

// TestMissing: the page names the works that were not measured, and this is no failure.
func TestMissing(t *testing.T) {
	rec := &record.Record{FormatVersion: record.Version, Skipped: []record.Skipped{{Peer: record.Ray, Reason: "it is not | installed"}}}
	s := rec.Add("launch-1", record.Golaunch, "golaunch")
	s.Samples = []float64{3, 1, 2}
	rec.Add("launch-1", record.Torchrun, "torchrun").Failed = 2
	all := parts(rec)
	for part, want := range map[string]string{
		"launch": "| golaunch | 2 ms (1 to 3 ms; 3) | not measured |", "ddp": "not measured", "facts": "| not compared: Ray | it is not / installed |",
		"short": "| launch and end of 1 rank | 2 ms | not measured | not measured | failed, 2 of 2 |", "commands": "| launch-1 | torchrun | 2 of 2 |",
	} {
		if !strings.Contains(all[part], want) {
			t.Errorf("%s does not say %q:\n%s", part, want, all[part])
		}
	}
	for _, g := range record.Groups {
		if text := plot(rec, g); (text != nil) != (g.ID == "launch") {
			t.Errorf("%s has a plot of %d bytes", g.ID, len(text))
		}
	}
}
