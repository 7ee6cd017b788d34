package health

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

func TestVersions(t *testing.T) {
	s, _ := p5()
	want := Versions{
		GPUs: "8 NVIDIA H100", Kernel: "6.8.0-1024-aws", Driver: "570.86.10", NCCL: "2.25.1", Libfabric: "1.25.0", EFA: "1.38.0",
		Python: "/usr/bin/python3 (python3.11)",
	}
	if got := Collect(t.Context(), s).Versions; !maps.Equal(got, want) {
		t.Errorf("p5: got %v, want %v", got, want)
	}
	s, _ = laptop()
	s.Getenv = environment("CONDA_PREFIX", "/opt/conda")
	want = Versions{Kernel: "6.12.1-arch1-1", Python: "CONDA_PREFIX=/opt/conda"}
	if got := Collect(t.Context(), s).Versions; !maps.Equal(got, want) {
		t.Errorf("laptop: got %v, want %v", got, want)
	}
}

func TestKinds(t *testing.T) {
	gpus := hopper(4)
	gpus[0].Name = "NVIDIA T4"
	if got, want := kinds(gpus), "1 NVIDIA T4 + 3 NVIDIA H100"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDriverVersion(t *testing.T) {
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12.3.0": "550.54.15",
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build  (dvs-builder)":             "570.86.10",
		"GCC version 12": "",
		"":               "",
	} {
		if got := driverVersion(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// fleet is 32 nodes, most of them with the same driver.
func fleet(others map[string]string) map[string]Versions {
	nodes := map[string]Versions{}
	for i := range 32 {
		name := fmt.Sprintf("n%d", i)
		nodes[name] = Versions{Driver: "570.86.10", Kernel: "6.8"}
		if v, ok := others[name]; ok {
			nodes[name][Driver] = v
		}
	}
	return nodes
}

func TestSkew(t *testing.T) {
	for _, test := range []struct {
		nodes map[string]Versions
		want  string
	}{
		{fleet(nil), ""},
		{nil, ""},
		{map[string]Versions{"a": {Driver: "1"}}, ""},
		{fleet(map[string]string{"n17": "565.57.01"}), "driver: 31 nodes 570.86.10; n17 565.57.01"},
		{fleet(map[string]string{"n3": "565", "n10": "565", "n9": "565", "n4": ""}), "driver: 28 nodes 570.86.10; n[3,9-10] 565; n4 none"},
		{map[string]Versions{"b": {Python: "/usr/bin/python3"}, "a": nil}, "python: b /usr/bin/python3; a none"},
		{
			fleet(map[string]string{"n1": "1", "n2": "2", "n3": "3", "n4": "4", "n5": "5", "n6": "6"}),
			"driver: 26 nodes 570.86.10; n1 1; n2 2; n3 3; n4 4; and 2 more",
		},
	} {
		var got []string
		for _, f := range Skew(test.nodes) {
			got = append(got, f.Text)
		}
		if strings.Join(got, "\n") != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// Half of a large cluster has another version. No list makes the names of these nodes short.
func TestSkewIsBounded(t *testing.T) {
	nodes := map[string]Versions{}
	for i := range 5000 {
		nodes[fmt.Sprintf("%x-node", i*7919)] = Versions{Kernel: fmt.Sprint(i % 3)}
	}
	found := Skew(nodes)
	if want := "kernel: 1667 nodes 0; 1667 others 1; 1666 others 2"; len(found) != 1 || found[0].Text != want {
		t.Errorf("got %v, want %q", found, want)
	}
}

func TestAtLeast(t *testing.T) {
	for release, want := range map[string]bool{
		"5.12.0": true, "5.11.9": false, "6.0": true, "6.8.0-45-generic": true, "5": false, "": false, "x.y": false, "4.18.0-553.el8": false,
	} {
		if got := atLeast(release, 5, 12); got != want {
			t.Errorf("%s at least 5.12: got %v", release, got)
		}
	}
}

func FuzzParsers(f *testing.F) {
	for _, seed := range []string{
		"[ 9.1] NVRM: Xid (PCI:0000:40:00): 79, pid=1", "NVRM: Xid (0000:01:00): 3, C 1", "NVRM: Xid (PCI:0000:0f:00): -5,", "NVRM: Xid (",
		"CapEff:\nCapEff:\tzz", "a\nCapEff:\t0000000000004000\n", "# EFA installer version: 1", "NVRM version: . 5.", "6.", "999999999999999999999.1",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, x := range ParseXids(text) {
			if x.Number <= 0 || strings.Contains(x.PCI, "\n") {
				t.Errorf("Xid %+v", x)
			}
		}
		if v := driverVersion(text); strings.ContainsAny(v, " \n") {
			t.Errorf("driver %q", v)
		}
		if v := efaVersion(text); strings.Contains(v, "\n") {
			t.Errorf("EFA %q", v)
		}
		if capable(text) && !strings.Contains(text, "CapEff:") {
			t.Error("capable of nothing that it says")
		}
		atLeast(text, 5, 12)
	})
}

func TestParseXidsKeepsTheNewest(t *testing.T) {
	var log strings.Builder
	for i := range 2 * maxXids {
		fmt.Fprintf(&log, "NVRM: Xid (PCI:0000:40:00): %d, x\n", i+1)
	}
	if got := ParseXids(log.String()); len(got) != maxXids || got[maxXids-1].Number != 2*maxXids {
		t.Errorf("got %d Xids up to %v", len(got), got[len(got)-1])
	}
}
