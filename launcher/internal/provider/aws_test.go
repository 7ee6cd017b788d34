package provider

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// ec2 is a moto server that stands for EC2, with the aws command that calls it.
type ec2 struct {
	t      *testing.T
	faults string
	url    string
}

func startEC2(t *testing.T) *ec2 {
	t.Helper()
	python := suite.Optional(t, "GOLAUNCH_TEST_AWS", "Python with awscli and moto[server]")
	e := &ec2{t: t, faults: t.TempDir()}
	cmd := exec.Command(python, "testdata/ec2.py", e.faults)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	words := &strings.Builder{}
	cmd.Stderr = words
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("moto does not start: %v: %s", err, words)
	}
	e.url = "http://127.0.0.1:" + strings.TrimSpace(port)
	t.Setenv("PATH", filepath.Join(e.faults, "bin")+":"+os.Getenv("PATH"))
	for _, v := range []string{"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_EC2_METADATA_DISABLED=true"} {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	return e
}

// cloud returns a provider of spot instances.
func (e *ec2) cloud(kind string, words ...string) *Cloud {
	e.t.Helper()
	words = append([]string{"--region=us-west-2", "--endpoint-url=" + e.url, "--instance-type=p4d.24xlarge", "--image-id=ami-12c6146b"}, words...)
	p, err := NewCloud("aws", words, CloudConfig{
		Cluster: "c", Kind: kind, Tags: map[string]string{"team": "a b, c"}, Agent: Agent{Golaunch: "/bin/true", Coordinator: "n0:1"}, Token: "a-secret-of-the-cluster",
		Login: Login{PublicKey: "ssh-ed25519 AAAA golaunch"},
	})
	if err != nil {
		e.t.Fatal(err)
	}
	return p
}

// fails makes the next n calls of an action fail.
func (e *ec2) fails(action string, n, status int, code, message string) {
	e.t.Helper()
	if err := os.WriteFile(filepath.Join(e.faults, action), fmt.Appendf(nil, "%d %d %s %s", n, status, code, message), 0o600); err != nil {
		e.t.Fatal(err)
	}
}

// TestAWS runs the real aws command to get spot instances from moto.
func TestAWS(t *testing.T) {
	e := startEC2(t)
	t.Setenv("AWS_MAX_ATTEMPTS", "2")
	p := e.cloud("k", "--instance-market-options", `{"MarketType":"spot","SpotOptions":{"MaxPrice":"9.5"}}`)
	if gpus, cpus, err := p.Shape(t.Context()); err != nil || gpus != 8 || cpus != 96 {
		t.Errorf("%d GPUs, %d CPUs, %v", gpus, cpus, err)
	}
	// The command itself repeats a throttled call. The calls of a second coordinator make no second
	// instance.
	e.fails("RunInstances", 1, 503, "RequestLimitExceeded", "Request limit exceeded.")
	for _, tags := range [][]string{{"c-1", "c-2"}, {"c-1"}} {
		if err := p.Create(t.Context(), tags); err != nil {
			t.Fatal(err)
		}
	}
	all, err := p.Cluster(t.Context())
	if err != nil || len(all) != 2 || !all[0].Running || all[0].Private == "" {
		t.Errorf("%+v, %v", all, err)
	}
	if other, err := e.cloud("other").List(t.Context()); err != nil || len(other) > 0 {
		t.Errorf("another kind has %v, %v", other, err)
	}
	if err := p.Delete(t.Context(), []string{"c-2", "c-3"}); err != nil {
		t.Fatal(err)
	}
	states, err := p.List(t.Context())
	if err != nil || len(states) != 1 || !strings.HasSuffix(states["c-1"], ", running") {
		t.Errorf("%v, %v", states, err)
	}

	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	for _, c := range []struct {
		status        int
		code, message string
	}{
		{500, "InsufficientInstanceCapacity", "We currently do not have sufficient p4d.24xlarge capacity."},
		{503, "RequestLimitExceeded", "Request limit exceeded."},
		{401, "AuthFailure", "AWS was not able to validate the provided access credentials"},
	} {
		e.fails("RunInstances", 1, c.status, c.code, c.message)
		err := p.Create(t.Context(), []string{"c-4"})
		if err == nil || !strings.Contains(err.Error(), "("+c.code+")") || !strings.Contains(err.Error(), c.message) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", c.code, err)
		}
	}
	if err := e.cloud("k", "--instance-type=p99.large").Create(t.Context(), []string{"c-5"}); err == nil || !strings.Contains(err.Error(), "Invalid value 'p99.large' for InstanceType") {
		t.Error(err)
	}
	// When a tag is used again after the end of its instance, each new nonce makes a new instance.
	for _, nonce := range []string{"-a", "-b"} {
		if err := errors.Join(p.CreateAgain(t.Context(), "c-head", nonce), p.CreateAgain(t.Context(), "c-head", nonce)); err != nil {
			t.Fatal(err)
		}
		if states, err := p.List(t.Context()); err != nil || !strings.HasSuffix(states["c-head"], ", running") {
			t.Errorf("nonce %s: %v, %v", nonce, states, err)
		}
		if err := p.Delete(t.Context(), []string{"c-head"}); err != nil {
			t.Error(err)
		}
	}
	if err := p.Delete(t.Context(), []string{"c-1"}); err != nil {
		t.Error(err)
	}
	if all, err := p.Cluster(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	if _, err := p.List(t.Context()); err == nil || !strings.Contains(err.Error(), "Unable to locate credentials") {
		t.Error(err)
	}
}

// TestNoSecretInACall: calls contain no secret, because users of the machine, and readers of a
// cloud's tags or logs, can see them.
func TestNoSecretInACall(t *testing.T) {
	cfg := CloudConfig{Cluster: "c", Kind: "k", Token: "a-secret-of-the-cluster", Login: Login{Key: "/key", PublicKey: "ssh-ed25519 AAAA"}, Setup: []string{"true"}}
	for name, words := range map[string][]string{
		"aws":   {"--instance-type=m5.large"},
		"gcp":   {"--zone=z", "--machine-type=m"},
		"azure": {"--resource-group=g", "--size=s", "--image=i"},
	} {
		p, err := NewCloud(name, words, cfg)
		if err != nil {
			t.Fatal(err)
		}
		line := strings.Join(slices.Concat(p.Line("c-1"), []string{lookScript("c-1"), installScript("c-1"), p.startScript("c-1")}), " ")
		if strings.Contains(line, "a-secret") || !strings.Contains(line, "ssh-ed25519 AAAA") {
			t.Errorf("%s: %s", name, line)
		}
	}
}

// TestUserData checks that the user data has golaunch's key, and that it does not replace a launch
// template's user data if the user has a key.
func TestUserData(t *testing.T) {
	for _, c := range []struct {
		words string
		own   bool
		want  bool
	}{
		{"--instance-type=m5.large", false, true},
		{"--instance-type=m5.large", true, true},
		{"--instance-type=m5.large --key-name=k", true, false},
		{"--instance-type=m5.large --user-data=file://u", false, false},
		{"--launch-template=LaunchTemplateName=t", false, true},
		{"--launch-template=LaunchTemplateName=t", true, false},
	} {
		p, err := NewCloud("aws", strings.Fields(c.words), CloudConfig{Login: Login{PublicKey: "ssh-ed25519 AAAA", Own: c.own}})
		if err != nil {
			t.Fatal(err)
		}
		if line := strings.Join(p.Line("c-1"), " "); strings.Contains(line, "#cloud-config") != c.want {
			t.Errorf("%s, own key %v: %s", c.words, c.own, line)
		}
	}
}

func TestOptionsOfClouds(t *testing.T) {
	for _, c := range []struct{ cloud, words, want string }{
		{"aws", "m5.large", `"m5.large" is no option; want --NAME=VALUE`},
		{"aws", "--region=us-west-2", "there is no --instance-type"},
		{"aws", "--instance-type=m5.large --client-token x", "golaunch sets --client-token itself"},
		{"aws", "--instance-type=m5.large", "golaunch sets the tag Name itself"},
		{"gcp", "--machine-type=m", "want one --zone"},
		{"gcp", "--zone=a", "there is no --machine-type"},
		{"gcp", "--zone=a --machine-type=m --async", "golaunch sets --async itself"},
		{"azure", "--size=s --image=i", "want one --resource-group"},
		{"azure", "--resource-group=g", "want --size and --image"},
	} {
		if _, err := NewCloud(c.cloud, strings.Fields(c.words), CloudConfig{Tags: map[string]string{"Name": "own"}}); err == nil || err.Error() != c.want {
			t.Errorf("%s %s: %v, want %s", c.cloud, c.words, err, c.want)
		}
	}
}

// machine puts a stand-in for ssh in front of PATH. A directory of this machine stands for the home
// directory of the remote machine.
func machine(t *testing.T) (home string) {
	t.Helper()
	dir := t.TempDir()
	home = filepath.Join(dir, "home")
	text := "#!/bin/sh\nfor last; do :; done\nexec env -i HOME=" + home + " PATH=\"$PATH\" sh -c \"$last\"\n"
	err := os.Mkdir(home, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "ssh"), []byte(text), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return home
}

// TestDeliver: a machine is prepared once, no matter how often and by which coordinator. Its agent
// has the token, which the setup commands do not see.
func TestDeliver(t *testing.T) {
	home := machine(t)
	dir := t.TempDir()
	agent, data := filepath.Join(dir, "agent"), filepath.Join(dir, "data")
	err := os.WriteFile(agent, []byte("#!/bin/sh\necho \"$GOLAUNCH_TOKEN $*\" >agent\necho $$ >pid\nread -r _ <fifo\n"), 0o700)
	if err == nil {
		err = os.Mkdir(data, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(data, "x"), []byte("data"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &Cloud{cfg: CloudConfig{
		Agent: Agent{Golaunch: agent, Coordinator: "n0:1"}, Token: "a-secret",
		Setup: []string{`cd; echo "[$GOLAUNCH_TOKEN]" >>setup; while [ ! -e go ]; do sleep 0.01; done`, "cat its/x >seen"},
		Files: []File{{To: "~/its", From: data}, {To: home + "/some/file", From: filepath.Join(data, "x")}},
	}}
	tag := fmt.Sprintf("t-%d", os.Getpid())
	p.machines = map[string]Machine{tag: {Tag: tag, State: "running", Running: true, Private: "10.0.0.9"}}
	deliver := func() string {
		states, failed := p.Deliver(t.Context(), []string{tag, "unknown"})
		if len(failed) > 0 {
			t.Fatal(failed)
		}
		return states[tag]
	}
	if err := syscall.Mkfifo(filepath.Join(home, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := deliver(); got != "running, setup has started" {
		t.Fatal(got)
	}
	await(t, "the setup", func() bool { return strings.HasPrefix(deliver(), "running, setup: cd; echo ") })
	if err := os.WriteFile(filepath.Join(home, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	await(t, "the agent", func() bool { return deliver() == "running, its agent has started" })
	await(t, "its process", func() bool {
		text, err := os.ReadFile(filepath.Join(home, "pid"))
		return err == nil && strings.HasSuffix(string(text), "\n")
	})
	defer func() {
		text, err := os.ReadFile(filepath.Join(home, "pid"))
		pid, wrong := strconv.Atoi(strings.TrimSpace(string(text)))
		if err = errors.Join(err, wrong); err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Error(err)
		}
	}()
	for file, want := range map[string]string{
		"setup": "[]\n", "seen": "data", "some/file": "data", "agent": "a-secret agent --coordinator n0:1 --label capacity.tag=" + tag + "\n",
	} {
		if text, err := os.ReadFile(filepath.Join(home, file)); err != nil || string(text) != want {
			t.Errorf("%s is %q, %v, want %q", file, text, err, want)
		}
	}
}

// TestSetupFails: a machine whose setup fails is of no use.
func TestSetupFails(t *testing.T) {
	machine(t)
	p := &Cloud{cfg: CloudConfig{Agent: Agent{Golaunch: "/bin/true"}, Setup: []string{"exit 3"}}}
	tag := fmt.Sprintf("t-%d", os.Getpid())
	p.machines = map[string]Machine{tag: {Tag: tag, Running: true, Private: "10.0.0.9"}}
	await(t, "the failure", func() bool {
		_, failed := p.Deliver(t.Context(), []string{tag})
		return strings.Contains(failed[tag], "its setup has failed: exit code 3: exit 3")
	})
}

// TestAnotherArchitecture: golaunch reports a machine of another architecture as soon as ssh
// reaches the machine.
func TestAnotherArchitecture(t *testing.T) {
	home := machine(t)
	uname := filepath.Join(t.TempDir(), "uname")
	if err := os.WriteFile(uname, []byte("#!/bin/sh\necho riscv64\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(uname)+":"+os.Getenv("PATH"))
	p := &Cloud{machines: map[string]Machine{"t-1": {Tag: "t-1", Running: true, Private: "10.0.0.9"}}}
	_, failed := p.Deliver(t.Context(), []string{"t-1"})
	if !strings.HasPrefix(failed["t-1"], "its architecture is riscv64, and golaunch is for ") {
		t.Error(failed)
	}
	if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
		t.Errorf("it has %v, %v", left, err)
	}
}

// TestNoProcessOutlivesAKill: when golaunch is killed, a command that it runs is killed too, with
// its children.
func TestNoProcessOutlivesAKill(t *testing.T) {
	if os.Getenv("CALL_TEST") != "" {
		_, _ = run(context.Background(), nil, "sh", "-c", "sleep 1000 & echo $! >$CALL_TEST; wait")
		return
	}
	file := filepath.Join(t.TempDir(), "pid")
	cmd := exec.Command(os.Args[0], "-test.run=^TestNoProcessOutlivesAKill$")
	cmd.Env = append(os.Environ(), "CALL_TEST="+file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := ""
	await(t, "the child", func() bool {
		text, err := os.ReadFile(file)
		pid = strings.TrimSpace(string(text))
		return err == nil && pid != ""
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	await(t, "its end", func() bool {
		state, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(state), ") Z ")
	})
}
