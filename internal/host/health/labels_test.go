package health

import (
	"maps"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLabels(t *testing.T) {
	given := []Finding{gpuECC.find("GPU 1 is bad"), gpuECC.find("GPU 2 is bad"), shmSmall.find("it has 64 MiB")}
	versions := Versions{Kernel: "6.8", Python: "/usr/bin/python3"}
	labels := Labels(given, versions)
	labels["rack"], labels["health.of-the-future"] = "r7", "unheard of"
	findings, got := FromLabels(labels)
	want := []Finding{gpuECC.find("GPU 1 is bad, GPU 2 is bad"), shmSmall.find("it has 64 MiB")}
	if !reflect.DeepEqual(findings, want) || !maps.Equal(got, versions) {
		t.Errorf("got %v and %v, want %v and %v", findings, got, want, versions)
	}
}

// TestLabelsAreBounded: a node has as many findings of one code as devices.
func TestLabelsAreBounded(t *testing.T) {
	given := make([]Finding, 1000)
	for i := range given {
		given[i] = gpuECC.find("GPU 1 is bad")
	}
	for key, text := range Labels(given, Versions{Python: strings.Repeat("漢", maxLabel)}) {
		if len(text) > maxLabel || !utf8.ValidString(text) || !strings.HasSuffix(text, "...") {
			t.Errorf("%s has %d bytes", key, len(text))
		}
	}
}

func TestGather(t *testing.T) {
	got := Gather([]string{"n10", "n1", "n2", "n3"}, map[string][]Finding{
		"n1": {shmSmall.find("64 MiB")}, "n2": {shmSmall.find("64 MiB"), gpuECC.find("GPU 1")}, "n3": {shmSmall.find("1 MiB")},
		"n10": {shmSmall.find("64 MiB")}, "n11": {shmSmall.find("not asked for")},
	})
	want := []Finding{
		{gpuECC, "GPU 1", "n2"}, {shmSmall, "64 MiB", "n[1-2,10]"}, {shmSmall, "1 MiB", "n3"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
