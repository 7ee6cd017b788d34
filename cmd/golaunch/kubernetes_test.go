package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// indexedJob are the pods of an Indexed Job with a headless service of the job's name.
func indexedJob(t *testing.T, completions int) *pods {
	t.Helper()
	t.Parallel()
	var hosts []string
	for i := range completions {
		hosts = append(hosts, fmt.Sprintf("train-%d", i))
	}
	ps := makePods(t, "train", hosts...)
	for i, p := range ps.all {
		p.with(secret, fmt.Sprintf("JOB_COMPLETION_INDEX=%d", i))
	}
	return ps
}

// TestIndexedJob: the name of pod 0 appears after the other pods have asked for it.
func TestIndexedJob(t *testing.T) {
	ps := indexedJob(t, 3)
	job := []string{"--nodes=3", "--procs-per-node=2", "--", "sh", "-c", told + " as $TORCHELASTIC_RUN_ID"}
	var all []*process
	for _, p := range ps.all[1:] {
		all = append(all, p.run(job...))
	}
	for i, p := range all {
		p.line(fmt.Sprintf("train-%d keeps trying: .*lookup train-0.train.default.svc.cluster.local: no such host", i+1))
	}
	all = append([]*process{ps.all[0].run(job...)}, all...)
	all[0].line("waiting for 2 of 3 nodes")
	ps.publish()
	for i, p := range all {
		rank := 2*[]int{1, 0, 2}[i] + 1
		p.ends(0, fmt.Sprintf("rank %d of 6 local 1 on train-%d at 10.76.0.9 gpus as train-default", rank, i))
		if text, _ := p.out.read(); strings.Count(text, "no such host") > 1 {
			t.Error("the reason for waiting is printed more than once")
		}
		ps.all[i].message(fmt.Sprintf(`golaunch: succeeded code=0 node=train-%d restarts=0/3 cause="job succeeded: 6 ranks exited 0"`, i))
	}
}

// TestAPodIsAlone: a pod is alone for longer than its limit.
func TestAPodIsAlone(t *testing.T) {
	ps := indexedJob(t, 2)
	for i, cause := range []string{
		"job timed out: waiting for 1 of 2 nodes; here: train-0 (10.76.0.10)",
		"node train-1 gave up joining (no coordinator was found in time; see --placement-timeout): cannot reach the coordinator at " +
			"train-0.train.default.svc.cluster.local:29400: dial tcp: lookup train-0.train.default.svc.cluster.local: no such host",
	} {
		ps.all[i].run("--nodes=2", "--placement-timeout=5s", "--", "true").ends(124, cause)
		ps.all[i].message(fmt.Sprintf("golaunch: timed-out code=124 node=train-%d restarts=0/3 cause=%q", i, cause))
	}
}

// TestPodsFail: all pods fail with the same code and the same message.
func TestPodsFail(t *testing.T) {
	ps := indexedJob(t, 2)
	ps.publish()
	var all []*process
	for _, p := range ps.all {
		all = append(all, p.run("--nodes=2", "--max-restarts=1", "--backoff=0s", "--", "sh", "-c", "[ $RANK = 1 ] && exit 7; sleep 1000"))
	}
	for i, p := range all {
		p.ends(7)
		ps.all[i].message(`golaunch: failed code=7 node=train-0 rank=1 attempt=1 restarts=1/1 cause="rank 1 on train-0 exited with code 7"`)
	}
}

// TestPodsOfControllers runs a job in the pods of each controller, with the variables that it sets.
func TestPodsOfControllers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		subdomain string
		hosts     []string
		common    []string
		each      string
		args      []string
		run       string
	}{
		"JobSet": {
			subdomain: "sim", hosts: []string{"sim-workers-0-0", "sim-workers-0-1"}, common: []string{"JOBSET_RESTART_ATTEMPT=2"},
			each: "JOB_COMPLETION_INDEX", args: []string{"--nodes=2"}, run: "sim-workers-0-default-r2",
		},
		"LeaderWorkerSet": {
			subdomain: "llm", hosts: []string{"llm-0", "llm-0-1"},
			common: []string{"LWS_LEADER_ADDRESS=llm-0.llm.default", "LWS_GROUP_SIZE=2"}, each: "LWS_WORKER_INDEX", run: "llm-0.llm.default",
		},
		"TrainJob": {
			subdomain: "llama", hosts: []string{"llama-node-0-0", "llama-node-0-1"}, common: []string{
				"PET_NNODES=2", "PET_NPROC_PER_NODE=1", "PET_MASTER_ADDR=llama-node-0-0.llama", "PET_MASTER_PORT=29500",
			}, each: "PET_NODE_RANK", run: "llama-node-0-0-default",
		},
		"PyTorchJob": {
			subdomain: "imagenet", hosts: []string{"imagenet-worker-0", "imagenet-worker-1"}, common: []string{
				"PET_RDZV_ENDPOINT=imagenet-worker-0:23456", "PET_RDZV_BACKEND=c10d", "PET_NNODES=2:2", "PET_NPROC_PER_NODE=1",
				"PET_MAX_RESTARTS=10",
			}, args: []string{"--job-id=imagenet"}, run: "imagenet",
		},
		"PyTorchJob with ranks": {
			subdomain: "mnist", hosts: []string{"mnist-master-0", "mnist-worker-0"},
			common: []string{"MASTER_ADDR=mnist-master-0", "MASTER_PORT=23456", "WORLD_SIZE=2"}, each: "RANK", run: "mnist-master-0-default",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ps := makePods(t, c.subdomain, c.hosts...)
			ps.publish()
			var all []*process
			for i, p := range ps.all {
				p.with(append(c.common, secret)...)
				if c.each != "" {
					p.with(fmt.Sprintf("%s=%d", c.each, i))
				}
				all = append(all, p.run(append(c.args, "--", "sh", "-c", told+" as $TORCHELASTIC_RUN_ID")...))
			}
			for i, p := range all {
				p.ends(0, fmt.Sprintf("rank %d of 2 local 0 on %s at 10.76.0.9 gpus as %s\n", 1-i, c.hosts[i], c.run))
			}
		})
	}
}

// TestVolcano has a file with the hosts of Volcano's svc plugin.
func TestVolcano(t *testing.T) {
	t.Parallel()
	ps := makePods(t, "ddp", "ddp-worker-0", "ddp-worker-1")
	ps.publish()
	var all []*process
	for i, p := range ps.all {
		p.with(secret, fmt.Sprintf("VC_TASK_INDEX=%d", i), "VC_WORKER_HOSTS=ddp-worker-0.ddp,ddp-worker-1.ddp", "VC_WORKER_NUM=2")
		p.file("etc/volcano/worker.host", "ddp-worker-0.ddp\nddp-worker-1.ddp\n")
		all = append(all, p.run("--", "sh", "-c", told+" as $TORCHELASTIC_RUN_ID"))
	}
	for i, p := range all {
		p.ends(0, fmt.Sprintf("rank %d of 2 local 0 on ddp-worker-%d at 10.76.0.9 gpus as ddp-default", 1-i, i))
	}
}

// TestPodsLackSomething: golaunch names the missing fact in one line, which is also the container's
// message.
func TestPodsLackSomething(t *testing.T) {
	t.Parallel()
	pet := []string{"PET_NNODES=2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=train-master-0.train", "PET_MASTER_PORT=29500"}
	for name, c := range map[string]struct {
		subdomain string
		env       []string
		args      []string
		code      int
		want      string
	}{
		"the number of nodes": {
			"train",
			[]string{"JOB_COMPLETION_INDEX=1"},
			nil, 2,
			"Kubernetes (Indexed Job) does not tell how many nodes the job has: give --nodes",
		},
		"a headless service": {
			"",
			[]string{"JOB_COMPLETION_INDEX=1"},
			[]string{"--nodes=2"},
			2,
			"Kubernetes (Indexed Job) does not tell where node 0 is: give the pods the subdomain of a headless service, or " +
				"--rendezvous HOST:PORT",
		},
		"a token": {
			"train",
			[]string{"JOB_COMPLETION_INDEX=1", "GOLAUNCH_TOKEN"},
			[]string{"--nodes=2"},
			125,
			"this pod has no token that the others share; set GOLAUNCH_TOKEN from a Secret in all of them",
		},
		"a token, at a rendezvous": {
			"train",
			[]string{"GOLAUNCH_TOKEN"},
			[]string{"--nodes=2", "--rendezvous=train-1"},
			125,
			"this pod has no token that the others share; set GOLAUNCH_TOKEN from a Secret in all of them",
		},
		"PET_NODE_RANK": {
			"train", append(pet, "PET_NODE_RANK"), nil, 2,
			"Kubeflow: PET_NODE_RANK is not set: pass it on to golaunch, or give --rendezvous HOST:PORT",
		},
		"PET_MASTER_ADDR": {
			"train", append(pet, "PET_MASTER_ADDR"), nil, 2,
			"Kubeflow: PET_MASTER_ADDR is not set: pass it on to golaunch, or give --rendezvous HOST:PORT",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := makePods(t, c.subdomain, "train-1").all[0].with(secret).with(c.env...)
			job := p.run(append(c.args, "--", "true")...)
			code, text := job.wait()
			if lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n"); code != c.code || lines[len(lines)-1] != "golaunch: "+c.want {
				t.Errorf("exit code %d, want %d, and one line %q", code, c.code, c.want)
			}
			p.message(fmt.Sprintf("golaunch: failed code=%d node=train-1 restarts=0/3 cause=%q", c.code, c.want))
		})
	}
}

// TestPodsApart: separate pods have a job each.
func TestPodsApart(t *testing.T) {
	t.Parallel()
	p := makePods(t, "", "sweep-3").all[0].with("JOB_COMPLETION_INDEX=3")
	p.run("--nodes=1", "--", "sh", "-c", told).ends(0, "rank 0 of 1 local 0 on sweep-3 at 127.0.0.1")
}

// secondSucceeds is a rank that runs until it is stopped; the second attempt succeeds.
const secondSucceeds = "echo up $RANK attempt $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 1000"

// TestAPodIsRestarted: the kubelet restarts a pod after its first process was killed, and with it
// all other processes; the guardian may be quick enough to prove this. Pod 0 goes on with the other
// pods and waits for the restarted one.
func TestAPodIsRestarted(t *testing.T) {
	ps := indexedJob(t, 2)
	ps.publish()
	job := []string{"--nodes=2", "--backoff=0s", "--lease=2s", "--", "sh", "-c", secondSucceeds}
	first, second := ps.all[0].run(job...), ps.all[1].run(job...)
	first.line("up 1 attempt 0")
	second.line("up 0 attempt 0")
	second.kill()
	first.line("train-1 was lost: (its agent has died|its agent was silent for 2.25s)")
	ps.all[1].run(job...).ends(0, "up 0 attempt 1")
	first.ends(0, "up 1 attempt 1")
	ps.all[0].message(`golaunch: succeeded code=0 node=train-0 restarts=1/3 cause="job succeeded: 2 ranks exited 0 after 1 restart"`)
}

// TestThePodThatLeadsIsRestarted: the others end at once, since the new leader knows nothing of
// their job. When they are restarted too, the job begins anew.
func TestThePodThatLeadsIsRestarted(t *testing.T) {
	ps := indexedJob(t, 2)
	ps.publish()
	job := []string{"--nodes=2", "--", "sh", "-c", "echo up $RANK; sleep 1000"}
	first, second := ps.all[0].run(job...), ps.all[1].run(job...)
	first.line("up 1")
	second.line("up 0")
	first.kill()
	first = ps.all[0].run(job...)
	const why = "the coordinator at train-0.train.default.svc.cluster.local:29400 refused node train-1: node train-1 had joined another coordinator"
	second.ends(125, why)
	ps.all[1].message(fmt.Sprintf("golaunch: lost code=125 node=train-1 restarts=0/3 cause=%q", why))
	second = ps.all[1].run(job...)
	first.line("up 1")
	second.line("up 0")
	first.signal(syscall.SIGTERM)
	for i, p := range []*process{first, second} {
		p.ends(143)
		ps.all[i].message(fmt.Sprintf(`golaunch: cancelled code=143 node=train-%d restarts=0/3 cause="job cancelled: got SIGTERM"`, i))
	}
}

// TestAPodIsEvicted: the ranks of the evicted pod end normally, and the other pods wait for the new
// pod in its place.
func TestAPodIsEvicted(t *testing.T) {
	ps := indexedJob(t, 2)
	ps.publish()
	job := []string{
		"--nodes=2", "--backoff=0s", "--grace=20s", "--", "sh", "-c",
		"trap 'echo saved $RANK; exit 0' TERM; echo up $RANK attempt $TORCHELASTIC_RESTART_COUNT; " +
			"[ $TORCHELASTIC_RESTART_COUNT = 1 ] || { sleep 1000 & wait; }",
	}
	first, second := ps.all[0].run(job...), ps.all[1].run(job...)
	first.line("up 1 attempt 0")
	second.line("up 0 attempt 0")
	second.signal(syscall.SIGTERM)
	second.ends(143, "saved 0")
	ps.all[1].message(`golaunch: cancelled code=143 node=train-1 restarts=0/3 cause="this node has left: got SIGTERM"`)
	first.line("train-1 was lost: this node has left: got SIGTERM")
	ps.all[1].run(job...).ends(0, "up 0 attempt 1")
	first.ends(0, "saved 1", "up 1 attempt 1")
}

// TestPodsAreEvicted: the leading pod and others are evicted at once. Another pod leads the job,
// and admits the new pods, without a failed attempt.
func TestPodsAreEvicted(t *testing.T) {
	t.Parallel()
	t.Run("1 of 3", func(t *testing.T) { podsAreEvicted(t, 3, 1) })
	t.Run("3 of 5", func(t *testing.T) { podsAreEvicted(t, 5, 3) })
}

func podsAreEvicted(t *testing.T, n, evicted int) {
	ps := indexedJob(t, n)
	ps.publish()
	job := []string{fmt.Sprintf("--nodes=%d", n), "--procs-per-node=1", "--drain-time=10m", "--notice-signal=USR1", "--", "sh", "-c", saver}
	var all []*process
	for _, p := range ps.all {
		all = append(all, p.run(job...))
	}
	all[0].line("can take over from train-0: " + strings.Repeat("train-., ", n-2))
	for _, p := range all[:evicted] {
		p.cmd.Process.Signal(syscall.SIGTERM)
	}
	for i, p := range all[:evicted] {
		p.ends(143, "saved ")
		ps.all[i].message(fmt.Sprintf(`golaunch: cancelled code=143 node=train-%d restarts=0/3 cause="this node has left: got SIGTERM"`, i))
		all[i] = ps.all[i].run(job...)
	}
	for i, p := range all {
		p.ends(0, fmt.Sprintf("resumed on train-%d", i))
		ps.all[i].message(fmt.Sprintf(`golaunch: succeeded code=0 node=train-%d restarts=0/3 cause="job succeeded: %d ranks exited 0"`, i, n))
	}
}

// TestARendezvousInPods waits for the name of the pod that runs the coordinator.
func TestARendezvousInPods(t *testing.T) {
	t.Parallel()
	ps := makePods(t, "train", "train-0", "train-1")
	job := func(i int, args ...string) *process {
		return ps.all[i].with(secret).run(append(args, "--rendezvous=train-0.train:29400", "--nodes=2", "--", "sh", "-c", told)...)
	}
	const unknown = "rendezvous host train-0.train: lookup train-0.train: no such host; use an address, or a name that every node can resolve"
	job(1, "--placement-timeout=2s").ends(124, "warning: keeps trying: "+unknown, "golaunch: waited 2s: "+unknown)
	ps.all[1].message(fmt.Sprintf(`golaunch: timed-out code=124 node=train-1 restarts=0/3 cause=%q`, "waited 2s: "+unknown))
	second := job(1)
	second.line("keeps trying: rendezvous host train-0.train")
	second.signal(syscall.SIGTERM)
	second.ends(143, "gave up waiting for the name of train-0.train:29400: got SIGTERM")
	second = job(1)
	second.line("keeps trying: rendezvous host train-0.train")
	ps.publish()
	first := job(0)
	first.ends(0, "rank 1 of 2 local 0 on train-0 at 10.76.0.9")
	second.ends(0, "rank 0 of 2 local 0 on train-1 at 10.76.0.9")
	ps.all[1].with("KUBERNETES_SERVICE_HOST=").run("--rendezvous=none.train", "--nodes=2", "--", "true").ends(125, "no such host")
}

// TestAClusterInPods: agents wait for the name of the coordinator's pod, and may be told to end
// meanwhile.
func TestAClusterInPods(t *testing.T) {
	t.Parallel()
	ps := makePods(t, "train", "train-0", "train-1")
	agent := func() *process { return ps.all[1].with(secret).run("agent", "--coordinator=train-0.train:29400") }
	told := agent()
	told.line("keeps trying: coordinator host train-0.train")
	told.signal(syscall.SIGTERM)
	told.ends(143)
	waits := agent()
	waits.line("keeps trying: coordinator host train-0.train")
	ps.publish()
	head := ps.all[0].with(secret).run("coordinator", "--listen=train-0.train:29400", "--state-dir=/tmp/state")
	head.line("the coordinator listens at")
	waits.line("is in the cluster of")
	waits.signal(syscall.SIGTERM)
	waits.ends(143)
	head.signal(syscall.SIGTERM)
	head.ends(0)
}

// TestTheFirstProcess: as the first process of a container, golaunch adopts orphans and reaps them,
// passes the exit code, and ends on SIGTERM.
func TestTheFirstProcess(t *testing.T) {
	t.Parallel()
	p := makePods(t, "", "alone").all[0]
	const orphans = `for i in 1 2 3; do (setsid sh -c 'setsid sleep 0.01 & echo $! >>$TMPDIR/orphans' &); done
while [ $(wc -l <$TMPDIR/orphans) -lt 3 ]; do sleep 0.01; done
for pid in $(cat $TMPDIR/orphans); do while [ -e /proc/$pid ]; do sleep 0.05; done; done
[ $PPID = 1 ] && echo reaped && exit 7`
	p.run("--max-restarts=0", "--", "sh", "-c", ": >$TMPDIR/orphans\n"+orphans).ends(7, "reaped")
	p.message(`golaunch: failed code=7 node=alone rank=0 attempt=0 restarts=0/0 cause="rank 0 on alone exited with code 7"`)
	stubborn := p.run("--grace=1s", "--termination-log=none", "--", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 1000; done")
	stubborn.line("up")
	stubborn.signal(syscall.SIGTERM)
	stubborn.ends(143, "got SIGTERM")
	p.message(`golaunch: failed code=7 node=alone rank=0 attempt=0 restarts=0/0 cause="rank 0 on alone exited with code 7"`)
	p.with("GOLAUNCH_TERMINATION_LOG=").run("--", "true").ends(0)
	if got := p.read("termination-log"); !strings.HasPrefix(got, "golaunch: failed ") {
		t.Errorf("an empty variable does not keep a job from leaving a message: %s", got)
	}
	p.run("--termination-log=/none/such", "--", "true").ends(0, "warning: cannot write the termination message: open /none/such: ")
}

// TestManifests runs pods with the settings that tools/manifests derives from the examples, except
// the GPUs and the program.
func TestManifests(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/pods.json")
	if err != nil {
		t.Fatal(err)
	}
	var manifests map[string][]struct {
		Host, Subdomain string
		Env, Args       []string
	}
	if err := json.Unmarshal(data, &manifests); err != nil {
		t.Fatal(err)
	}
	for name, given := range manifests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var hosts []string
			for _, g := range given {
				hosts = append(hosts, g.Host)
			}
			ps := makePods(t, given[0].Subdomain, hosts...)
			ps.publish()
			var all []*process
			for i, p := range ps.all {
				p.with(given[i].Env...)
				if !slices.Contains(p.env, "GOLAUNCH_TOKEN=secret/token") {
					t.Errorf("%s has no token", p.host)
				}
				args := slices.Clone(given[i].Args[:slices.Index(given[i].Args, "--")+1])
				args[slices.Index(args, "--gpus-per-node=8")] = "--procs-per-node=2"
				all = append(all, p.with(secret).run(append(args, "sh", "-c", told)...))
			}
			for i, p := range all {
				p.ends(0, fmt.Sprintf("rank %d of 4 local 1 on %s at 10.76.0.9", []int{3, 1}[i], hosts[i]))
			}
		})
	}
}

// TestThePodThatLeadsIsReplaced: a pod with another address replaces the leading pod. The other
// pods go on under another leader, and the new pod joins them. A pod that then replaces another one
// finds the leader through it.
func TestThePodThatLeadsIsReplaced(t *testing.T) {
	t.Parallel()
	ps := makePods(t, "train", "train-0", "train-1", "train-2", "train-0")
	names := strings.SplitAfter(ps.known, "\n")
	ps.known = strings.Join(names[:3], "")
	ps.publish()
	job := []string{
		"--nodes=3", "--procs-per-node=1", "--lease=6s", "--backoff=0s", "--", "sh", "-c",
		"a=$TORCHELASTIC_RESTART_COUNT; echo node $NODE_RANK attempt $a; [ $a = 2 ] || sleep 1000",
	}
	var all []*process
	runs := func(attempt int) {
		t.Helper()
		for i, p := range all {
			p.line(fmt.Sprintf("node %d attempt %d$", []int{1, 0, 2}[i], attempt))
		}
	}
	for i, p := range ps.all {
		p.with(secret, fmt.Sprintf("JOB_COMPLETION_INDEX=%d", i%3))
		if i < 3 {
			all = append(all, p.run(job...))
		}
	}
	all[0].line("can take over from train-0: train-[12], train-[12]$")
	kill(t, all[0].cmd.Process.Pid, syscall.SIGKILL)
	all[0].ends(-1)
	for _, p := range ps.all {
		p.file("etc/hosts", strings.Replace(p.read("etc/hosts"), names[0], names[3], 1))
	}
	all[0] = ps.all[3].run(job...)
	all[0].line(`train-0 joins anew: node train-[12] leads this job already, at `)
	runs(1)
	leader := 1
	if text, _ := all[1].out.read(); !strings.Contains(text, "train-1 leads the job from now on") {
		leader = 2
	}
	all[leader].line(fmt.Sprintf("can take over from train-%d: .*, ", leader))
	other := 3 - leader
	kill(t, all[other].cmd.Process.Pid, syscall.SIGKILL)
	all[other].ends(-1)
	all[other] = ps.all[other].run(job...)
	runs(2)
	for i, p := range all {
		p.ends(0)
		ps.all[[]int{3, 1, 2}[i]].message(fmt.Sprintf(
			`golaunch: succeeded code=0 node=train-%d restarts=2/3 cause="job succeeded: 3 ranks exited 0 after 2 restarts"`, i))
	}
}
