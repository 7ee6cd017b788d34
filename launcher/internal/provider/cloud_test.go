package provider

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCloudsByTheirCommands: each call has only arguments that the cloud's command documents. The
// commands are stand-ins, which ask no cloud.
func TestCloudsByTheirCommands(t *testing.T) {
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for _, c := range []struct {
		name, running, refused, why string
		words                       []string
	}{
		{
			"gcp", "instance running", "--machine-type=n9", "Invalid value for field 'resource.machineType'",
			[]string{
				"--project=research", "--zone=us-west1-a", "--machine-type=n1-standard-8", "--provisioning-model=SPOT",
				"--instance-termination-action=DELETE", "--accelerator=type=nvidia-tesla-t4,count=1", "--labels=own=1", "--metadata=a=b",
			},
		},
		{
			"azure", "machine running", "--size=Standard_Q1", "(QuotaExceeded) Operation could not be completed",
			[]string{
				"--resource-group=research", "--location=westus2", "--size=Standard_D2s_v3", "--image=a:b:c:latest", "--priority=Spot", "--max-price=-1",
				"--tags", "own=1",
			},
		},
	} {
		t.Setenv("INSTANCES", t.TempDir())
		t.Setenv("RESOURCES", t.TempDir())
		cloud := func(kind string, words []string) *Cloud {
			t.Helper()
			p, err := NewCloud(c.name, words, CloudConfig{
				Cluster: "c", Kind: kind, Tags: map[string]string{"team": "vision"}, Login: Login{User: "ada", PublicKey: "ssh-ed25519 AAAA golaunch"},
			})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		p := cloud("k", c.words)
		if err := p.Create(t.Context(), []string{"c-1", "c-2"}); err != nil {
			t.Fatal(err)
		}
		if err := cloud("other", c.words).Create(t.Context(), []string{"o-1"}); err != nil {
			t.Fatal(err)
		}
		if states, err := p.List(t.Context()); err != nil || fmt.Sprint(states) != fmt.Sprintf("map[c-1:%[1]s c-2:%[1]s]", c.running) {
			t.Errorf("%s: %v, %v", c.name, states, err)
		}
		all, err := p.Cluster(t.Context())
		if err != nil || len(all) != 3 || !all[0].Running || !strings.HasPrefix(all[0].Private, "10.0.0.") {
			t.Errorf("%s: %+v, %v", c.name, all, err)
		}
		tagged, err := os.ReadFile(filepath.Join(os.Getenv("INSTANCES"), "c-1"))
		for _, tag := range []string{`"team": "vision"`, `"own": "1"`, `"golaunch-cluster": "c"`, `"golaunch-kind": "k"`} {
			if err != nil || !strings.Contains(string(tagged), tag) {
				t.Errorf("%s: %s, %v, want %s", c.name, tagged, err, tag)
			}
		}
		if err := p.Delete(t.Context(), []string{"c-2", "c-9"}); err != nil {
			t.Error(err)
		}
		if err := p.Remove(t.Context(), all[:1]); err != nil {
			t.Error(err)
		}
		own, err := os.ReadDir(os.Getenv("RESOURCES"))
		if (c.name == "azure") != (len(own) == 1 && own[0].Name() == "golaunch-c") || err != nil {
			t.Errorf("%s has made %v, %v", c.name, own, err)
		}
		if err := p.RemoveRest(t.Context()); err != nil {
			t.Error(err)
		}
		if kept, err := os.ReadDir(os.Getenv("RESOURCES")); err != nil || len(kept) != len(own) {
			t.Errorf("%s: %v, %v, while there is a machine", c.name, kept, err)
		}
		if err := errors.Join(p.Remove(t.Context(), all[2:]), p.RemoveRest(t.Context())); err != nil {
			t.Error(err)
		}
		if rest, err := os.ReadDir(os.Getenv("RESOURCES")); err != nil || len(rest) > 0 {
			t.Errorf("%s: %v, %v", c.name, rest, err)
		}
		if states, err := p.List(t.Context()); err != nil || len(states) > 0 {
			t.Errorf("%s: %v, %v", c.name, states, err)
		}
		words := append([]string{c.refused}, c.words...)
		for i, w := range words[1:] { // no option may occur twice
			if name, _, _ := strings.Cut(c.refused, "="); strings.HasPrefix(w, name+"=") {
				words = append(words[:i+1:i+1], words[i+2:]...)
				break
			}
		}
		if err := cloud("k", words).Create(t.Context(), []string{"c-3"}); err == nil || !strings.Contains(err.Error(), c.why) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", c.name, err, c.why)
		}
	}
}
