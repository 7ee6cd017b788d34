package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
	"github.com/golaunch/golaunch/internal/testkit/sshtest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// ec2 is moto's EC2. People work on the first node. The others are instances: when EC2 begins one,
// the test boots it, as an image with cloud-init would. The instance is an sshd, in namespaces of its
// own, that takes the keys in the instance's user data.
type ec2 struct {
	*heads
	moto *process
	// site is the directory of moto and of what instances need. env has the variables of all programs
	// that call AWS.
	site string
	env  []string
	// dead reports whether an instance never boots.
	dead     func(i instance) bool
	machines map[string]*sshtest.Server
}

// instance is an instance that begins or, with the ID alone, ends.
type instance struct {
	ID, Name, Address string
	UserData          string `json:"user_data"`
}

func startEC2(t *testing.T, instances int) *ec2 {
	t.Helper()
	python := suite.Optional(t, "GOLAUNCH_TEST_AWS", "Python with awscli and moto[server]")
	addrs := []string{"10.77.0.2"}
	for i := range instances {
		addrs = append(addrs, fmt.Sprintf("10.77.0.%d", 9+i))
	}
	e := &ec2{
		heads: &heads{t: t, nodes: nettest.Nodes(t, addrs...), home: t.TempDir(), dir: t.TempDir()},
		site:  t.TempDir(), machines: map[string]*sshtest.Server{}, dead: func(instance) bool { return false },
	}
	for _, n := range e.nodes[1:] {
		if out, err := n.Command("ip", "route", "add", "default", "via", addrs[0]).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	e.moto = start(t, e.nodes[0].Command(append([]string{python, "../../launcher/internal/provider/testdata/ec2.py", e.site}, addrs[1:]...)...))
	port := e.moto.match(`(?m)^(\d+)$`)[1]
	e.write("bin/ssh", "#!/bin/sh\nexec /usr/bin/ssh -F /dev/null \"$@\"\n", 0o700)
	e.env = []string{
		"PATH=" + filepath.Join(e.site, "bin") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "AWS_ENDPOINT_URL=http://127.0.0.1:" + port,
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_DEFAULT_REGION=us-west-2", "AWS_MAX_ATTEMPTS=1", "GOLAUNCH_ALLOW_RUN_AS_ROOT=true",
	}
	stop, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		e.follow(stop)
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
		for _, m := range e.machines {
			m.End()
		}
	})
	return e
}

// follow boots instances, and ends them.
func (e *ec2) follow(stop <-chan bool) {
	for read := 0; ; {
		text, more := e.moto.out.read()
		for line := range strings.Lines(text[read:]) {
			if !strings.HasSuffix(line, "\n") {
				break
			}
			read += len(line)
			var i instance
			if !strings.HasPrefix(line, `{"id"`) {
				continue
			}
			if err := json.Unmarshal([]byte(line), &i); err != nil {
				e.t.Errorf("%v in %s", err, line)
			}
			if m := e.machines[i.ID]; i.Name == "" && m != nil {
				m.End()
				delete(e.machines, i.ID)
			} else if i.Name != "" && !e.dead(i) {
				e.boot(i)
			}
		}
		select {
		case <-more:
		case <-stop:
			return
		}
	}
}

func (e *ec2) boot(i instance) {
	var cloud struct {
		Keys []string `yaml:"ssh_authorized_keys"`
	}
	keys := filepath.Join(e.site, i.ID+".keys")
	err := yaml.Unmarshal([]byte(i.UserData), &cloud)
	if err == nil {
		err = os.WriteFile(keys, []byte(strings.Join(cloud.Keys, "\n")), 0o600)
	}
	node := e.nodes[slices.IndexFunc(e.nodes, func(n nettest.Node) bool { return n.Addr.String() == i.Address })]
	node.Name = i.Name
	if err == nil {
		e.machines[i.ID], err = sshtest.Serve(e.t, node, e.site, keys, e.env...)
	}
	if err != nil {
		e.t.Errorf("boot %s: %v", i.Name, err)
	}
}

func (e *ec2) write(name, text string, mode os.FileMode) {
	e.t.Helper()
	if err := os.WriteFile(filepath.Join(e.site, name), []byte(text), mode); err != nil {
		e.t.Fatal(err)
	}
}

// golaunch runs golaunch as a person does.
func (e *ec2) golaunch(args ...string) *process {
	e.t.Helper()
	cmd := e.nodes[0].Command(append([]string{golaunch(e.t)}, args...)...)
	cmd.Dir = e.dir
	return start(e.t, cmd, append(e.env, "HOME="+e.home)...)
}

// TestUpOnAWS runs up with a file of Ray's, whose head and workers are instances. A second up
// changes nothing, and a changed file restarts the coordinator under a job. In the end there is no
// instance.
func TestUpOnAWS(t *testing.T) {
	t.Parallel()
	e := startEC2(t, 2)
	const text = `
cluster_name: vision
provider: {type: aws, region: us-west-2, use_internal_ips: true}
max_workers: %d
idle_timeout_minutes: 100
auth: {ssh_user: root}
file_mounts: {~/code: %s}
setup_commands: [cp ~/code/a ~/b]
head_start_ray_commands: [ray start --head]
available_node_types:
  ray.head.default: {resources: {CPU: 1}, node_config: {InstanceType: m5.large, ImageId: ami-12c6146b}}
  ray.worker.default:
    max_workers: 2
    node_config: {InstanceType: t2.micro, ImageId: ami-12c6146b, InstanceMarketOptions: {MarketType: spot}}
head_node_type: ray.head.default
`
	e.write("a", "content\n", 0o600)
	code := filepath.Join(e.dir, "code")
	if err := os.Mkdir(code, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(e.site, "a"), filepath.Join(code, "a")); err != nil {
		t.Fatal(err)
	}
	file := e.capacity(fmt.Sprintf(text, 1, code))
	if e.golaunch("up", file).ends(0, "line 9: head_start_ray_commands: not needed", "aws is asked for the head, vision-head", "head: cp ~/code/a ~/b", "cluster vision is up"); t.Failed() {
		t.FailNow()
	}
	e.golaunch("up", file).ends(0, "cluster vision is up as the file says; nothing has changed")
	fifo := filepath.Join(e.dir, "go")
	write := gate(t, fifo)
	job := e.golaunch("exec", file, "golaunch --nodes 2 --procs-per-node 1 -- sh -c 'cat ~/b; echo rank $RANK on $(hostname); read -r _ <"+fifo+"'; exit 7")
	job.line("rank 0 on vision-head")
	job.line("rank 1 on ray-worker-default-")

	e.capacity(fmt.Sprintf(text, 2, code))
	e.golaunch("up", file, "--yes").ends(0, "cluster vision is up; its coordinator is at 10.77.0.9:29400")
	write(2)
	job.ends(7, "content", "job succeeded")

	e.golaunch("down", file, "--yes").ends(0, "nodes given back: 1; none is left", "cluster vision is down; nothing is left of it")
	for _, name := range []string{"vision-head", "ray-worker-default-[a-z0-9]+-1"} {
		e.moto.line(`^{"id": "` + e.moto.match(`"id": "(i-[0-9a-f]+)", "name": "` + name + `"`)[1] + `"}$`)
	}
	if left, err := filepath.Glob(filepath.Join(e.home, ".golaunch/clusters/*")); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

var awsSeed = flag.Uint64("aws-seed", 0, "the seed of TestCapacityOnAWS")

// TestCapacityOnAWS grows a cluster from 0 instances and back in a random world. EC2 has no capacity,
// and throttles calls. One instance never boots, and one is lost under a job. The coordinator is
// killed twice. Each job ends well. In the end there are only the instances of others.
func TestCapacityOnAWS(t *testing.T) {
	suite.LeftToAll(t, "it takes two minutes")
	t.Parallel()
	seed := cmp.Or(*awsSeed, rand.Uint64())
	t.Logf("-aws-seed=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	e := startEC2(t, 9)
	begun, never := 0, 1+rng.IntN(3)
	e.dead = func(i instance) bool {
		if strings.HasPrefix(i.Name, "other") {
			return true
		}
		begun++
		return begun == never
	}
	for i, cluster := range []string{"elsewhere", "world"} {
		name := fmt.Sprint("other-", i)
		e.aws("run-instances", "--client-token", name, "--instance-type=t2.micro", "--image-id=ami-12c6146b",
			"--tag-specifications", fmt.Sprintf("ResourceType=instance,Tags=[{Key=golaunch-cluster,Value=%s},{Key=golaunch-kind,Value=spot},{Key=Name,Value=%s}]", cluster, name))
	}
	for action, code := range map[string]string{
		"RunInstances": "InsufficientInstanceCapacity", "DescribeInstances": "RequestLimitExceeded", "TerminateInstances": "RequestLimitExceeded",
	} {
		e.write(action, fmt.Sprintf("%d 503 %s Not now.", 1+rng.IntN(2), code), 0o600)
	}
	const kind = "cpus: 1, max: 3, idle: 2s, start_timeout: 30s, aws: [--instance-type=t2.micro, --image-id=ami-12c6146b"
	file := e.capacity("name: world\nssh: {user: root}\nkinds:\n" +
		"  spot: {cost: 1, " + kind + `, '--instance-market-options={"MarketType":"spot"}']}` + "\n  demand: {cost: 3, " + kind + "]}\n")
	const at = "10.77.0.2:29400"
	coordinate := func() *process {
		p := e.golaunch("coordinator", "--listen", "10.77.0.2", "--capacity", file)
		p.line("golaunch agent --coordinator ")
		return p
	}
	coordinator := coordinate()
	// killed kills the coordinator when it, or moto, has printed one of these.
	killed := func(ofCoordinator, ofMoto string) {
		if rng.IntN(2) == 0 {
			coordinator.line(ofCoordinator)
		} else {
			e.moto.line(ofMoto)
		}
		coordinator.kill()
		coordinator = coordinate()
	}
	var jobs []*process
	for i := range 3 {
		jobs = append(jobs, e.golaunch("--coordinator", at, "--job-id", fmt.Sprint("j", i), "--nodes", fmt.Sprint(1+rng.IntN(3)),
			"--procs-per-node", "1", "--", "sh", "-c", "echo up on $(hostname).; sleep 10"))
	}
	killed("requested: for job j", `"name": "(spot|demand)-`)
	lost := jobs[0].match(`up on (\S+)\.$`)[1]
	e.aws("terminate-instances", "--instance-ids", e.moto.match(`"id": "(i-[0-9a-f]+)", "name": "` + lost + `"`)[1])
	killed("is given back: ", `^{"id": "i-[0-9a-f]+"}$`)
	for _, job := range jobs {
		job.ends(0, "job succeeded")
	}

	begins := regexp.MustCompile(`(?m)^{"id": "(i-[0-9a-f]+)", "name": "(.*?)"`)
	for all := [][]string(nil); ; {
		text, _ := e.moto.out.read()
		now := begins.FindAllStringSubmatch(text, -1)
		for _, i := range now {
			if !strings.HasPrefix(i[2], "other") {
				e.moto.line(`^{"id": "` + i[1] + `"}$`)
			}
		}
		if len(now) == len(all) {
			break
		}
		all = now
	}
	text, _ := e.moto.out.read()
	names := map[string]bool{}
	for _, i := range begins.FindAllStringSubmatch(text, -1) {
		if names[i[2]] {
			t.Errorf("%s was made twice", i[2])
		}
		names[i[2]] = true
		if strings.HasPrefix(i[2], "other") && strings.Contains(text, `{"id": "`+i[1]+`"}`) {
			t.Errorf("%s was deleted", i[2])
		}
	}
}

// aws runs the command of AWS as a person does.
func (e *ec2) aws(args ...string) {
	e.t.Helper()
	cmd := exec.Command(filepath.Join(e.site, "bin/aws"), append([]string{"ec2"}, args...)...)
	start(e.t, cmd, e.env...).ends(0)
}
