package launcher

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"testing"

	"github.com/golaunch/golaunch/launcher/report"
)

var recordTask = flag.Bool("record-task", false, "write the golden file of a job as agents get it")

// TestTaskKeepsItsBytes compares a job with every field set, as a coordinator keeps it for its
// agents, with a recorded one, and reads one that the version before named fields wrote.
func TestTaskKeepsItsBytes(t *testing.T) {
	j := filled[Job]()
	j.Restarts.ExitCodes = map[report.Ending]int{report.EndProgram: 3}
	j.Output.Torch.Redirects, j.Output.Torch.Tee = map[int]int{0: 1}, map[int]int{1: 2}
	text, err := json.MarshalIndent(j, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if *recordTask {
		if err := os.WriteFile("testdata/task.json", text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var all []Job
	for _, name := range []string{"testdata/task.json", "testdata/task-before.json"} {
		recorded, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if name == "testdata/task.json" && !bytes.Equal(text, recorded) {
			t.Errorf("a task is\n%s", text)
		}
		d := json.NewDecoder(bytes.NewReader(recorded))
		d.DisallowUnknownFields()
		var read Job
		if err := d.Decode(&read); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, read)
	}
	all[0].Workspace, all[0].WorkspaceLimit, all[0].CheckpointDir = "", 0, "" // they are newer
	all[0].Restarts.ReplicaGroups, all[0].Restarts.MinGroups = 0, 0
	if !reflect.DeepEqual(all[0], all[1]) {
		t.Errorf("the task of before is read as %+v", all[1])
	}
}
