package capacityfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func rayFiles(t testing.TB) []string {
	t.Helper()
	all, err := filepath.Glob("testdata/ray-*.yaml")
	if err != nil || len(all) != 4 {
		t.Fatalf("%v, %v", all, err)
	}
	return all
}

func read(t *testing.T, name string) File {
	t.Helper()
	file, err := Read(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// hasWords checks a kind, and the words that its provider gets.
func hasWords(t *testing.T, k Kind, name, provider string, least, most, cpus, gpus int, want ...string) {
	t.Helper()
	if k.Name != name || k.Provider != provider || k.Min != least || k.Max != most || k.Node.CPUs != cpus || len(k.Node.GPUs) != gpus {
		t.Errorf("%+v", k)
	}
	if got := strings.Join(k.Words, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("%s has the words\n%s\nwant\n%s", name, got, strings.Join(want, "\n"))
	}
}

func notes(t *testing.T, f File, want ...string) {
	t.Helper()
	if got := strings.Join(f.Notes, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("the notes are\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func TestRayOnAWS(t *testing.T) {
	f := read(t, "ray-aws.yaml")
	hasWords(t, f.Kinds[0], "ray-head-default", "aws", 0, 0, 0, 0, "--region=us-west-2", "--placement=AvailabilityZone=us-west-2a", "--instance-type=m5.large")
	hasWords(t, f.Kinds[1], "ray-worker-default", "aws", 3, 3, 0, 0, "--region=us-west-2", "--placement=AvailabilityZone=us-west-2a",
		"--instance-type=p4d.24xlarge", "--image-id=ami-0123456789abcdef0", "--security-group-ids", "sg-1", "sg-2", "--ebs-optimized",
		"--block-device-mappings", `[{"DeviceName":"/dev/sda1","Ebs":{"VolumeSize":140,"VolumeType":"gp3"}}]`,
		"--instance-market-options", `{"MarketType":"spot","SpotOptions":{"MaxPrice":"9.5"}}`)
	notes(t, f,
		"line 9: upscaling_speed: golaunch asks for all the nodes that the queue needs",
		"line 35: rsync_exclude: not served: file_mounts are copied whole",
		"line 40: head_start_ray_commands: not needed: golaunch starts its coordinator",
		"line 43: worker_start_ray_commands: not needed: golaunch starts its agents",
		"line 6: availability_zone: golaunch asks for nodes in us-west-2a only; make a node type for each zone",
		"line 30: TagSpecifications: golaunch sets the tag Name itself")
	k := f.Kinds[1]
	got := fmt.Sprint(f.Name, f.Head, f.User, f.Public, f.Files, f.Setup, f.HeadSetup, k.Setup, k.Tags, k.Idle, k.Limit)
	want := "vision-team{ ray-head-default}ubuntu true[{/opt/code ./code 33} {~/data /srv/data 33}][echo first pip install torch][echo head]" +
		"[echo first pip install torch echo worker]map[team:vision]5m0s5m0s"
	if strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestRayOnGCP(t *testing.T) {
	f := read(t, "ray-gcp.yaml")
	hasWords(t, f.Kinds[0], "head", "gcp", 0, 0, 2, 0, "--zone=us-west1-a", "--project=my-project", "--machine-type=n1-standard-2", "--boot-disk-size=50GB",
		"--image-family=f", "--image-project=p")
	hasWords(t, f.Kinds[1], "gpu-worker", "gcp", 1, 2, 8, 1, "--zone=us-west1-a", "--project=my-project", "--machine-type=n1-standard-8",
		"--boot-disk-size=100GB", "--boot-disk-type=pd-ssd", "--image=i-7", "--image-project=p", "--provisioning-model=SPOT",
		"--instance-termination-action=DELETE", "--accelerator=type=nvidia-tesla-t4,count=1", "--metadata=install-nvidia-driver=True", "--service-account=a@b",
		"--scopes=https://www.googleapis.com/auth/cloud-platform")
	notes(t, f, "line 28: docker: not served: commands run on the machine itself, whose image must have what they need",
		"line 12: accelerator: no resource of golaunch's: give nodes labels")
	if f.Max != 2 || f.Key != "~/.ssh/gcp" || f.Kinds[1].Tags["team"] != "vision" {
		t.Errorf("%+v", f)
	}
}

func TestRayOnAzure(t *testing.T) {
	f := read(t, "ray-azure.yaml")
	hasWords(t, f.Kinds[1], "ray-worker-default", "azure", 0, 4, 2, 0, "--location=westus2", "--resource-group=research", "--size=Standard_D2s_v3",
		"--priority=Spot", "--max-price=-1", "--image=microsoft-dsvm:ubuntu-2204:2204-gen2:latest")
	notes(t, f)
	if f.Public || f.Kinds[1].Tags["cost-center"] != "42" {
		t.Errorf("%+v", f)
	}
}

func TestRayOnHostsThatAreThere(t *testing.T) {
	f := read(t, "ray-local.yaml")
	hasWords(t, f.Kinds[0], "worker", "ssh", 1, 3, 0, 0, "ada@n1", "ada@n2", "ada@n3")
	notes(t, f, "setup commands and file_mounts do not reach hosts that are there already: prepare these yourself")
	if f.Head.Host != "ada@login1" || f.Kinds[0].Idle != time.Minute {
		t.Errorf("%+v", f)
	}
}

func TestMistakesInAFileOfRay(t *testing.T) {
	text, err := os.ReadFile("testdata/ray-aws.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{"upscaling_speed: 1.0", "upscaling: 1.0", `line 9: "upscaling" is no field of Ray's cluster file that golaunch knows`},
		{"type: aws", "type: kuberay", `line 4: "kuberay": want aws, azure, gcp or local`},
		{"cache_stopped_nodes", "stopped_nodes", `line 7: "stopped_nodes" is no field of Ray's provider aws`},
		{"ImageId:", "Image:", `line 23: "Image" is no field of RunInstances that golaunch passes on`},
		{"max_workers: 3\nups", "max_workers: 2\nups", "line 17: ray.worker.default has min_workers 3, and may have 2 workers"},
		{"min_workers: 3", "workers: 3", `line 18: "workers" is not known; want node_config, resources,`},
		{"head_node_type: ray.head.default", "head_node_type: ray.head", `line 32: "ray.head": want one of available_node_types`},
		{"head_node_type: ray.head.default", "", "there is no head_node_type"},
		{"idle_timeout_minutes: 5", "idle_timeout_minutes: soon", `line 10: "soon": want a number of minutes`},
		{"docker: {}", "worker_nodes: {InstanceType: x}", "line 12: worker_nodes is of an early Ray; use available_node_types"},
		{"ResourceType: instance", "ResourceType: volume", "line 31: golaunch tags instances only"},
		{"/opt/code:", "code:", `line 33: "code": want an absolute path on the nodes`},
		{"Vision_Team", "Vision Team", `line 2: "vision team": want the name of a cluster`},
	} {
		changed := strings.Replace(string(text), c.from, c.to, 1)
		if changed == string(text) {
			t.Fatalf("%q is not in the file", c.from)
		}
		if _, err := Parse([]byte(changed)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", c.to, err, c.want)
		}
	}
}
