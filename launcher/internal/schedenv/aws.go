package schedenv

import (
	"encoding/json"
	"slices"
	"strings"
)

// port is where nodes in containers meet node 0. No other process can use this port there, since
// each container has a network of its own.
const port = 29400

// batch reads the variables that AWS Batch sets on the nodes of a multi-node parallel job. The
// job's attempts count from 1
// (https://docs.aws.amazon.com/batch/latest/userguide/job_env_vars.html). golaunch makes the main
// node node 0, no matter which index it has. AWS Batch does not tell the main node its own address.
func (r *reader) batch() {
	id, _, _ := strings.Cut(r.must("AWS_BATCH_JOB_ID"), "#")
	r.place.Job = jobName("batch", id)
	if r.has("AWS_BATCH_JOB_ATTEMPT") {
		r.place.Restarts = r.number("AWS_BATCH_JOB_ATTEMPT", 1) - 1
	}
	index, head := r.number("AWS_BATCH_JOB_NODE_INDEX", 0), r.number("AWS_BATCH_JOB_MAIN_NODE_INDEX", 0)
	r.place.Nodes = r.number("AWS_BATCH_JOB_NUM_NODES", 1)
	if max(index, head) >= r.place.Nodes {
		r.fail("AWS_BATCH_JOB_NODE_INDEX is %d and AWS_BATCH_JOB_MAIN_NODE_INDEX %d of %d nodes: leave them as Batch sets them",
			index, head, r.place.Nodes)
	}
	r.place.Node = (index - head + r.place.Nodes) % r.place.Nodes
	r.place.Head, r.place.Port = r.Hostname, port
	if r.place.Node != 0 {
		r.place.Head = r.must("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS")
	}
}

// sageMaker reads resourceconfig.json, which SageMaker puts into every training container
// (https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo-running-container.html)
// and its training toolkit into SM_RESOURCE_CONFIG. The hosts are sorted, and the first is node 0,
// as for other toolkits.
func (r *reader) sageMaker() {
	text := []byte(r.text("SM_RESOURCE_CONFIG"))
	if len(text) == 0 {
		var err error
		if text, err = r.file("/opt/ml/input/config/resourceconfig.json"); err != nil {
			r.fail("TRAINING_JOB_ARN is set, but %v: set SM_RESOURCE_CONFIG, or give --rendezvous HOST:PORT", err)
		}
	}
	var config struct {
		Current   string   `json:"current_host"`
		Hosts     []string `json:"hosts"`
		Interface string   `json:"network_interface_name"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		r.fail("read resourceconfig.json (SM_RESOURCE_CONFIG): %v: correct it, or give --rendezvous HOST:PORT", err)
	}
	p := &r.place
	p.Job, p.Port = jobName(r.must("TRAINING_JOB_NAME")), port
	p.Names, p.Name, p.Interface = config.Hosts, config.Current, config.Interface
	p.Nodes, p.Node = len(config.Hosts), slices.Index(config.Hosts, config.Current)
	if p.Node < 0 {
		r.fail("resourceconfig.json (SM_RESOURCE_CONFIG) does not have current_host %q among its hosts: correct it", config.Current)
	} else {
		p.Head = p.Names[0]
	}
}
