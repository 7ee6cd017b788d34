package hyperpod

import (
	"encoding/json"
	"fmt"

	"github.com/golaunch/golaunch/agent/internal/ranksocket"
)

// The types of messages and the ways to restart are defined in
// hyperpod_elastic_agent/ipc/common.py.
const (
	typeInit       = "init"
	typeAtBarrier  = "at_rcb_barrier"
	typePast       = "past_rcb_barrier"
	typeFault      = "job_fault"
	typeData       = "job_data"
	typeLabels     = "rank_labels"
	typeStart      = "job_start"
	typeRankInfo   = "job_rank_info"
	typeSavesBegin = "ckpt_init"
	typeSaved      = "ckpt_info_update"
	typeNewestSave = "ckpt_info_get"

	inProcess = "in_process_restart"
)

// message is a message from a rank.
type message struct {
	Type   string `json:"type"`
	Client string `json:"client_id"`
	// RestartMode, Reason and Message are set in the report of a fault.
	RestartMode string `json:"restart_mode"`
	Reason      string `json:"reason"`
	Message     string `json:"message"`
	// Data is what the other ranks learn at the next start.
	Data *string `json:"data"`
	// Prefix and Kinds are set when a rank begins to save. Kinds is how many ranks of the node save
	// a checkpoint of each kind; nil for none. Step, Path and Kind are set when a rank has saved a
	// checkpoint.
	Prefix string         `json:"prefix"`
	Kinds  map[string]int `json:"checkpoint_types"`
	Step   int64          `json:"step"`
	Path   string         `json:"path"`
	Kind   string         `json:"checkpoint_type"`
}

// maxClient bounds the name of a client, in bytes; it is a UUID.
const maxClient = 64

func parse(text []byte) (m message, err error) {
	if err := json.Unmarshal(text, &m); err != nil {
		return message{}, fmt.Errorf("a message that is no JSON object: %w", err)
	}
	if m.Client == "" || len(m.Client) > maxClient {
		return message{}, fmt.Errorf("a message %.20q without a client_id", m.Type)
	}
	return m, nil
}

// said is a message to a client of a rank.
type said struct {
	Type   string `json:"type"`
	Client string `json:"client_id"`
	// Env and Job are what a rank needs for the next run.
	Env map[string]string `json:"worker_envs,omitempty"`
	Job *jobData          `json:"aggregate_worker_data,omitempty"`
	// RestartCount is set when the message tells of a fault.
	RestartCount *int `json:"restart_count,omitempty"`
}

// newestSave answers a question for the newest checkpoint. Path is null if there is no checkpoint.
type newestSave struct {
	Type   string  `json:"type"`
	Client string  `json:"client_id"`
	Path   *string `json:"path"`
}

// jobData tells each rank about all ranks of the job.
type jobData struct {
	RankIPs []rankIP   `json:"rank_ips"`
	Workers []rankData `json:"aggregate_worker_data"`
}

// rankIP is the address of a node, by its node rank.
type rankIP struct {
	Rank int    `json:"rank"`
	IP   string `json:"ip"`
}

type rankData struct {
	GroupRank int    `json:"group_rank"`
	Rank      int    `json:"rank"`
	LocalRank int    `json:"local_rank"`
	Failed    bool   `json:"failed"`
	Data      string `json:"data"`
}

func frame(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return ranksocket.Frame(text), err
}
