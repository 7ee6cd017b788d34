package provider

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// kubectl puts a stand-in for kubectl in front of PATH. It returns the directory where the stand-in
// keeps its pods.
func kubectl(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	pods := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("PODS", pods)
	return pods
}

func example(t *testing.T) Kubernetes {
	t.Helper()
	p, err := NewKubernetes("a100-8", []string{"../../../examples/capacity/pod.yaml", "--namespace=train"}, Agent{Golaunch: "/opt/golaunch", Coordinator: "n0:1"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestKubernetes(t *testing.T) {
	pods := kubectl(t)
	p := example(t)
	list := func(want string) {
		t.Helper()
		got, err := p.List(t.Context())
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%v, %v, want %s", got, err, want)
		}
	}
	list("map[]")
	if err := p.Create(t.Context(), []string{"t-1", "t-2"}); err != nil {
		t.Fatal(err)
	}
	if err := p.Create(t.Context(), []string{"t-2", "t-3"}); err == nil || !strings.Contains(err.Error(), `pods "t-2" already exists`) {
		t.Error(err)
	}
	list("map[t-1:pod pending t-2:pod pending t-3:pod pending]")

	var pod struct {
		Metadata struct{ Labels map[string]string }
		Spec     struct {
			RestartPolicy string
			Containers    []struct{ Command, Args []string }
		}
	}
	file := filepath.Join(pods, "t-1")
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &pod)
	}
	want := []string{"agent", "--coordinator", "n0:1", "--label", "capacity.tag=t-1"}
	if c := pod.Spec.Containers; err != nil || len(c) != 1 || !reflect.DeepEqual(c[0].Args, want) || !reflect.DeepEqual(c[0].Command, []string{"golaunch"}) ||
		pod.Metadata.Labels[kindLabel] != "a100-8" || pod.Spec.RestartPolicy != "Never" {
		t.Errorf("%s, %v", text, err)
	}

	status := func(name, status string) {
		t.Helper()
		text := fmt.Sprintf(`{"metadata": {"name": %q, "labels": {%q: "a100-8"}}, "status": %s}`, name, kindLabel, status)
		if err := os.WriteFile(filepath.Join(pods, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	status("t-1", `{"phase": "Pending", "conditions": [{"type": "Ready"}, {"type": "PodScheduled", "message": "0/3 nodes are available"}]}`)
	status("t-2", `{"phase": "Failed", "reason": "Evicted"}`)
	status("t-3", `{"phase": "Running", "conditions": [{"type": "PodScheduled"}]}`)
	list("map[t-1:pod pending: 0/3 nodes are available t-3:pod running]")
	if err := p.Delete(t.Context(), []string{"t-1", "t-2", "t-9"}); err != nil {
		t.Error(err)
	}
	list("map[t-3:pod running]")
	other := p
	other.kind = "other"
	if got, err := other.List(t.Context()); err != nil || len(got) > 0 {
		t.Errorf("another kind has %v, %v", got, err)
	}
	p.options = []string{"--namespace=train", "--gpus=8"}
	if _, err := p.List(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "error: unknown flag: --gpus=8") {
		t.Error(err)
	}
}

// TestPodKeepsItsOwn: fields that golaunch does not set stay as in the file, and a change of one
// pod does not change another.
func TestPodKeepsItsOwn(t *testing.T) {
	const text = `
apiVersion: v1
kind: Pod
metadata: {generateName: x-, labels: {team: blue}}
spec:
  hostNetwork: true
  containers:
  - {image: i, command: [sh, wrap], args: [--num-gpus=2]}
  - {image: side, args: [x]}
`
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := NewKubernetes("k", []string{file}, Agent{Golaunch: "/g", Coordinator: "n0:1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"t-1", "t-2"} {
		got, err := p.manifest(tag)
		want := `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"golaunch-kind":"k","team":"blue"},"name":"` + tag + `"},"spec":{"containers":[` +
			`{"args":["agent","--coordinator","n0:1","--label","capacity.tag=` + tag + `","--num-gpus=2"],"command":["sh","wrap"],"image":"i"},` +
			`{"args":["x"],"image":"side"}],"hostNetwork":true,"restartPolicy":"Never"}}`
		if err != nil || string(got) != want {
			t.Errorf("%s, %v\nwant %s", got, err, want)
		}
	}
}

func TestFilesThatAreNoPod(t *testing.T) {
	const head = "apiVersion: v1\nkind: Pod\n"
	for text, want := range map[string]string{
		"":                               "want apiVersion: v1 and kind: Pod",
		"apiVersion: apps/v1\nkind: Pod": "want apiVersion: v1 and kind: Pod",
		"a: [":                           "yaml: line 1",
		head:                             "spec.containers has none",
		head + "spec: {containers: [x]}": "spec.containers[0] has no fields",
		head + "spec: {restartPolicy: Always, containers: [{image: i}]}": "spec.restartPolicy is Always: want Never",
		head + "spec: {1: x, containers: [{image: i}]}":                  "spec.containers has none",
		"#" + strings.Repeat("x", maxManifest):                           "has more than 256 KiB",
	} {
		file := filepath.Join(t.TempDir(), "pod.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := NewKubernetes("k", []string{file}, Agent{}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%.100s: %v\nwant %s", text, err, want)
		}
	}
	if _, err := NewKubernetes("k", []string{"/nowhere/pod.yaml"}, Agent{}); err == nil || !strings.Contains(err.Error(), "/nowhere/pod.yaml") {
		t.Error(err)
	}
}
