package schedenv_test

import (
	"testing"

	"github.com/golaunch/golaunch/launcher/internal/schedenv"
)

// hosts returns a pod's /etc/hosts as the kubelet writes it.
func hosts(names string) map[string]string {
	return map[string]string{"etc/hosts": "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-loopback\n" +
		"10.244.121.182\t" + names + "\n"}
}

// indexedPod is a pod of the example in
// https://kubernetes.io/docs/tasks/job/job-with-pod-to-pod-communication/.
var indexedPod = given{
	host: "pings-2", env: "JOB_COMPLETION_INDEX=2\nKUBERNETES_SERVICE_HOST=10.96.0.1",
	files: hosts("pings-2.headless-svc.default.svc.cluster.local\tpings-2"),
}

func TestIndexedJob(t *testing.T) {
	want := schedenv.Place{
		By: "Kubernetes (Indexed Job)", Job: "pings-default", Node: 2,
		Head: "pings-0.headless-svc.default.svc.cluster.local", Port: 29400, Each: true,
	}
	alone := schedenv.Place{By: want.By, Job: "pings", Node: 2, Each: true}
	bare := indexedPod
	bare.files = hosts("pings-2")
	set := indexedPod.on("sim-workers-0-2").and("JOBSET_RESTART_ATTEMPT=4")
	set.files = hosts("sim-workers-0-2.sim.lab.svc.cluster.local\tsim-workers-0-2")
	finds(t, map[string]found{
		"a headless service":    {indexedPod, want},
		"whole name as host":    {indexedPod.on("pings-2.headless-svc.default.svc.cluster.local"), want},
		"no service":            {bare, alone},
		"the network of a host": {indexedPod.on("ip-10-0-1-17"), schedenv.Place{By: want.By, Node: 2, Each: true}},
		"a JobSet": {set, schedenv.Place{
			By: "Kubernetes (JobSet)", Job: "sim-workers-0-lab", Restarts: 4, Node: 2,
			Head: "sim-workers-0-0.sim.lab.svc.cluster.local", Port: 29400, Each: true,
		}},
	})
	refuses(t, map[string]given{
		`JOB_COMPLETION_INDEX is "-1", not a number`:     indexedPod.and("JOB_COMPLETION_INDEX=-1"),
		`JOBSET_RESTART_ATTEMPT is "many", not a number`: indexedPod.and("JOBSET_RESTART_ATTEMPT=many"),
	})
}

// lwsPod has the variables of pkg/utils/pod/pod_utils.go in https://github.com/kubernetes-sigs/lws.
var lwsPod = given{host: "vllm-0-3", env: `LWS_LEADER_ADDRESS=vllm-0.vllm.default
	LWS_GROUP_SIZE=4
	LWS_WORKER_INDEX=3`}

func TestLeaderWorkerSet(t *testing.T) {
	finds(t, map[string]found{"a worker": {lwsPod, schedenv.Place{
		By: "Kubernetes (LeaderWorkerSet)", Job: "vllm-0.vllm.default", Nodes: 4, Node: 3,
		Head: "vllm-0.vllm.default", Port: 29400, Each: true,
	}}})
	refuses(t, map[string]given{
		"LWS_WORKER_INDEX is not set": lwsPod.and("LWS_WORKER_INDEX="),
		"node 4 of only 4":            lwsPod.and("LWS_WORKER_INDEX=4"),
	})
}

// trainJob has the variables of pkg/runtime/framework/plugins/torch/torch.go in
// https://github.com/kubeflow/trainer.
var trainJob = given{host: "llama-node-0-1", env: `PET_NNODES=2
	PET_NPROC_PER_NODE=auto
	PET_NODE_RANK=1
	PET_MASTER_ADDR=llama-node-0-0.llama
	PET_MASTER_PORT=29500
	JOB_COMPLETION_INDEX=1
	KUBERNETES_SERVICE_HOST=10.96.0.1`, files: hosts("llama-node-0-1.llama.ml.svc.cluster.local\tllama-node-0-1")}

// elasticJob has the variables of pkg/controller.v1/pytorch/elastic.go in
// https://github.com/kubeflow/training-operator.
var elasticJob = given{host: "imagenet-worker-2", env: `PET_RDZV_ENDPOINT=imagenet-worker-0:23456
	PET_RDZV_BACKEND=c10d
	PET_NNODES=1:3
	PET_MAX_RESTARTS=100
	KUBERNETES_SERVICE_HOST=10.96.0.1`}

func TestKubeflow(t *testing.T) {
	want := schedenv.Place{
		By: "Kubeflow", Job: "llama-node-0-0-ml", Nodes: 2, Node: 1,
		Head: "llama-node-0-0.llama", Port: 29500, PerNode: "auto", Each: true,
	}
	alone := schedenv.Place{By: "Kubeflow", Nodes: 1, PerNode: "4", Each: true}
	elastic := schedenv.Place{By: "Kubeflow", Job: "imagenet-worker-0", Node: 2, Head: "imagenet-worker-0", Port: 23456, Each: true}
	ranked := elastic
	ranked.Job, ranked.Nodes, ranked.Node, ranked.Port = "id7-imagenet-worker-0", 3, 1, 29400
	outside := want
	outside.By = "the environment (PET_NNODES)"
	finds(t, map[string]found{
		"a TrainJob":           {trainJob, want},
		"a TrainJob of a node": {trainJob.and("PET_NNODES=1", "PET_NPROC_PER_NODE=4"), alone},
		"outside Kubernetes":   {trainJob.and("KUBERNETES_SERVICE_HOST="), outside},
		"an elastic job":       {elasticJob, elastic},
		"a rank and an id": {elasticJob.and("PET_NNODES=3:3", "PET_NODE_RANK=1", "PET_RDZV_ID=id7",
			"PET_RDZV_ENDPOINT=imagenet-worker-0"), ranked},
	})
	anyPort := want
	anyPort.Port, anyPort.PerNode = 0, ""
	finds(t, map[string]found{"no port": {trainJob.and("PET_MASTER_PORT=", "PET_NPROC_PER_NODE="), anyPort}})
	refuses(t, map[string]given{
		"Kubeflow: PET_NODE_RANK is not set: pass it on":    trainJob.and("PET_NODE_RANK=").on("llama"),
		"PET_MASTER_ADDR is not set":                        trainJob.and("PET_MASTER_ADDR="),
		`PET_NNODES is "two", not a number`:                 trainJob.and("PET_NNODES=two"),
		`PET_NNODES is "1", not a number from 2`:            trainJob.and("PET_NNODES=2:1"),
		`PET_NPROC_PER_NODE is "many", not a number`:        trainJob.and("PET_NPROC_PER_NODE=many"),
		`the port in PET_RDZV_ENDPOINT is "x"`:              elasticJob.and("PET_RDZV_ENDPOINT=n1:x"),
		`the end of the host name imagenet-worker-x is "x"`: elasticJob.on("imagenet-worker-x"),
	})
}

// TestMaster uses the variables that Volcano's pytorch plugin, and the training operator until 1.6,
// set in a pod.
func TestMaster(t *testing.T) {
	g := given{
		host: "pytorch-job-worker-0", env: `MASTER_ADDR=pytorch-job-master-0.pytorch-job
	MASTER_PORT=23456
	WORLD_SIZE=3
	RANK=1
	VC_TASK_INDEX=0
	KUBERNETES_SERVICE_HOST=10.96.0.1`,
		files: hosts("pytorch-job-worker-0.pytorch-job.default.svc.cluster.local\tpytorch-job-worker-0"),
	}
	finds(t, map[string]found{"a worker": {g, schedenv.Place{
		By: "Kubernetes (MASTER_ADDR)", Job: "pytorch-job-master-0-default", Nodes: 3, Node: 1,
		Head: "pytorch-job-master-0.pytorch-job", Port: 23456, Each: true,
	}}})
	refuses(t, map[string]given{
		`WORLD_SIZE is "0"`:       g.and("WORLD_SIZE=0"),
		`MASTER_PORT is "123456"`: g.and("MASTER_PORT=123456"),
	})
	if p, err := schedenv.Find(g.and("LOCAL_RANK=0", "VC_TASK_INDEX=").machine()); p != nil || err != nil {
		t.Errorf("a process of torchrun: found %+v, %v", p, err)
	}
}

// volcanoPod has the variables and files in docs/user-guide/how_to_use_svc_plugin.md and
// how_to_use_env_plugin.md of https://github.com/volcano-sh/volcano.
var volcanoPod = given{host: "train-worker-1", env: `VK_TASK_INDEX=1
	VC_TASK_INDEX=1
	VC_WORKER_HOSTS=train-worker-0.train,train-worker-1.train
	VC_WORKER_NUM=2`, files: func() map[string]string {
	files := hosts("train-worker-1.train.ml.svc.cluster.local\ttrain-worker-1")
	files["etc/volcano/worker.host"] = "train-worker-0.train\ntrain-worker-1.train"
	return files
}()}

func TestVolcano(t *testing.T) {
	want := schedenv.Place{By: "Volcano", Job: "train-ml", Nodes: 2, Node: 1, Head: "train-worker-0.train", Port: 29400, Each: true}
	two := volcanoPod
	two.files = map[string]string{
		"etc/volcano/master.host": "train-master-0.train",
		"etc/volcano/worker.host": "train-worker-0.train",
	}
	none := volcanoPod
	none.files = nil
	finds(t, map[string]found{"a worker": {volcanoPod, want}, "an old release": {volcanoPod.and("VC_TASK_INDEX="), want}})
	refuses(t, map[string]given{
		"the job has 2 tasks: add the pytorch plugin":           two,
		"names no hosts: add the svc plugin":                    none,
		"this host, train-worker-1, in place 1, and the task's": volcanoPod.and("VC_TASK_INDEX=0"),
	})
}
