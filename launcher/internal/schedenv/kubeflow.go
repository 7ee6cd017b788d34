package schedenv

import (
	"net"
	"strconv"
	"strings"
)

// kubeflow reads torchrun's own variables, by which Kubeflow's Trainer (TrainJob;
// pkg/runtime/framework/plugins/torch) and the training operator before it (PyTorchJob;
// pkg/controller.v1/pytorch) tell torchrun its node. An elastic PyTorchJob has no PET_NODE_RANK:
// its pods have the names JOB-worker-INDEX, and the endpoint is the first pod. If the number of
// nodes is a range, MIN:MAX, Nodes stays unknown.
func (r *reader) kubeflow() {
	if !r.has("KUBERNETES_SERVICE_HOST") {
		r.place.By = "the environment (PET_NNODES)"
	}
	least, most, elastic := strings.Cut(r.text("PET_NNODES"), ":")
	r.place.Nodes = r.count("PET_NNODES", least, 1, maxNodes)
	if elastic && r.count("PET_NNODES", most, r.place.Nodes, maxNodes) != r.place.Nodes {
		r.place.Nodes = 0
	}
	r.place.PerNode = r.perNode()
	if r.place.Nodes != 1 {
		r.endpoint()
	}
}

// perNode reads the value of torchrun's --nproc-per-node.
func (r *reader) perNode() string {
	switch n := r.text("PET_NPROC_PER_NODE"); n {
	case "", "gpu", "cpu", "auto":
		return n
	default:
		return strconv.Itoa(r.count("PET_NPROC_PER_NODE", n, 1, maxNodes))
	}
}

// endpoint sets Head, Port, Job and Node. Head and Port are where torchrun's nodes would meet:
// PET_RDZV_ENDPOINT, or else the master (torch/distributed/run.py).
func (r *reader) endpoint() {
	p, pod := &r.place, r.pod()
	if at := r.text("PET_RDZV_ENDPOINT"); at != "" {
		host, number, err := net.SplitHostPort(at)
		if err != nil {
			host, number = at, strconv.Itoa(port)
		}
		p.Head, p.Port = host, r.count("the port in PET_RDZV_ENDPOINT", number, 1, 65535)
	} else {
		p.Head, p.Port = r.must("PET_MASTER_ADDR"), r.port("PET_MASTER_PORT")
	}
	first := short(p.Head)
	p.Job = jobName(r.text("PET_RDZV_ID"), first, pod.namespace)
	if job, ok := strings.CutSuffix(first, "-0"); ok && !r.has("PET_NODE_RANK") {
		if index, ok := strings.CutPrefix(pod.host, job+"-"); ok {
			p.Node = r.count("the end of the host name "+pod.host, index, 0, maxNodes)
			return
		}
	}
	p.Node = r.number("PET_NODE_RANK", 0)
}

// master reads RANK and WORLD_SIZE, by which older training operators and Volcano's pytorch plugin
// (docs/user-guide/how_to_use_pytorch_plugin.md) number the nodes. If LOCAL_RANK is set too, these
// variables number processes instead.
func (r *reader) master() {
	r.place.Node, r.place.Nodes = r.number("RANK", 0), r.number("WORLD_SIZE", 1)
	r.place.Head, r.place.Port = r.must("MASTER_ADDR"), r.port("MASTER_PORT")
	r.place.Job = jobName(short(r.place.Head), r.pod().namespace)
}
