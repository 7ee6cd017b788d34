package provider

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/golaunch/golaunch/internal/core/capacity"
	"github.com/golaunch/golaunch/launcher/internal/capacityfile"
	"github.com/golaunch/golaunch/placement"
)

// TestNewNodesFindWhatTheCoordinatorFinds: a relative path names the same file for new nodes as for
// the coordinator, although new nodes start in another directory.
func TestNewNodesFindWhatTheCoordinatorFinds(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	kind := capacityfile.Kind{
		Kind:     capacity.Kind{Name: "toy", Node: placement.Node{Labels: map[string]string{"rack": "r7", "zone": "a"}}},
		Provider: "exec", Words: []string{"./provider"},
	}
	all, err := Capacity(t.Context(), "capacity.yaml", capacityfile.File{Kinds: []capacityfile.Kind{kind}}, Cluster{Coordinator: "n0:29400", TokenFile: "token"})
	want := Exec{Kind: "toy", Command: []string{"./provider"}, Agent: Agent{
		Golaunch: self, Coordinator: "n0:29400", TokenFile: filepath.Join(dir, "token"), Labels: []string{"rack=r7", "zone=a"},
	}}
	if err != nil || len(all) != 1 || !reflect.DeepEqual(all[0].Provider, want) {
		t.Errorf("%+v, %v\nwant %+v", all, err, want)
	}
}
