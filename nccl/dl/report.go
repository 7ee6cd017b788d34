package dl

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/golaunch/golaunch/internal/host/lazyregexp"
)

// Report has the facts that the RAS service knows about its job. The fields are the same as in
// rasDumpCommsToJSON in src/ras/client_support.cc.
type Report struct {
	// Raw is the report as NCCL wrote it.
	Raw string `json:"-"`
	// NCCL is the version of the process that answered, such as 2.30.7.
	NCCL          string         `json:"nccl_version"`
	Communicators []Communicator `json:"communicators"`
	Collection    struct {
		Seconds float64 `json:"collection_time_sec"`
		// Timeouts counts the connections on which no answer arrived in time. If it is above 0, the
		// report is incomplete.
		Timeouts int `json:"timeouts_count"`
	} `json:"ras"`
}

// Communicator is a group of ranks that communicate. Hash and SecondaryHash together identify it.
type Communicator struct {
	Hash          string `json:"hash"`
	SecondaryHash string `json:"secondary_hash"`
	// Size is the number of the communicator's ranks, including ranks that the report omits.
	Size    int           `json:"size"`
	Ranks   []Rank        `json:"ranks"`
	Missing []MissingRank `json:"missing_ranks"`
}

// Process says which process a rank is. Rank is the rank's number within the communicator. The
// other fields are the same in all communicators.
type Process struct {
	Rank int `json:"rank"`
	// Host is an IP address, or "unknown".
	Host string `json:"host"`
	// PID is the process's number in its own PID namespace; -1 if unknown.
	PID int `json:"pid"`
	// CUDADevice is the GPU's number among the GPUs that the process sees, and NVMLDevice its
	// number among all GPUs of the node.
	CUDADevice int `json:"cuda_dev"`
	NVMLDevice int `json:"nvml_dev"`
}

// Rank is a rank that answered.
type Rank struct {
	Process
	State struct {
		// Init and Async are results of nccl.h: 0 means success, 7 in progress, and any other
		// number an error.
		Init      int  `json:"init_state"`
		Async     int  `json:"async_error"`
		Finalized bool `json:"finalize_called"`
		Destroyed bool `json:"destroy_flag"`
		Aborted   bool `json:"abort_flag"`
	} `json:"status"`
	// Launched counts the operations that the rank has started, by name, such as AllReduce. The
	// other ranks wait for a rank whose counts are lower than theirs.
	Launched map[string]uint64 `json:"collective_counts"`
}

// MissingRank is a rank that has not reported. It has left the communicator, or State says why it
// has not.
type MissingRank struct {
	Process
	State struct {
		Unresponsive bool `json:"unresponsive"`
		// Dead is a process that was unreachable for 60 s (RAS_PEER_DEAD_TIMEOUT in
		// src/ras/ras_internal.h).
		Dead bool `json:"considered_dead"`
	} `json:"status"`
}

// noComma matches a place where NCCL 2.28.9 forgets a comma, in the entry of each missing rank. It
// never matches valid JSON.
var noComma = lazyregexp.New(`("nvml_dev": -?\d+)(\s+"status":)`)

func parseReport(raw string) (Report, error) {
	var r Report
	err := json.Unmarshal(noComma.Get().ReplaceAll([]byte(raw), []byte("$1,$2")), &r)
	if err == nil && r.NCCL == "" {
		err = errors.New("it names no version of NCCL")
	}
	if err != nil {
		return Report{Raw: raw}, fmt.Errorf("read the report of NCCL's RAS service: %w", err)
	}
	r.Raw = raw
	return r, nil
}
