package rankenv

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"time"
)

// ErrNotLaunched means that neither golaunch nor torchrun started this process.
var ErrNotLaunched = errors.New("not started by a launcher: TORCHELASTIC_RUN_ID is not set; run it with golaunch -- COMMAND")

// Info has the facts that a rank can read about itself and its job. [Facts] explains the fields.
type Info struct {
	JobID                     string
	Rank, LocalRank           int
	WorldSize, LocalWorldSize int
	NodeRank, Nodes           int
	MasterAddr                string
	MasterPort                int
	// StoreHosted is true if the launcher serves torch's store at MasterAddr:MasterPort. Otherwise
	// rank 0 must serve it.
	StoreHosted          bool
	Attempt, MaxRestarts int
	ErrorFile            string
	// NoticeFile is the path of a file that appears when the rank is going to be stopped; see
	// docs/failures.md.
	NoticeFile string
	// HeartbeatFile is the file to which [Info.Beat] writes steps.
	HeartbeatFile string
	// Ports are the ports on which programs of this node may listen for other nodes, FIRST:LAST;
	// empty means any.
	Ports string
	// NodeName and GPUUUID are empty under torchrun. GPUUUID is also empty for a rank without a GPU
	// of its own.
	NodeName, GPUUUID string
}

// Current reads from the environment which rank this process is. It fails with [ErrNotLaunched]
// outside of a launcher; any other error names each missing or wrong variable.
func Current() (Info, error) {
	jobID, ok := os.LookupEnv("TORCHELASTIC_RUN_ID")
	if !ok {
		return Info{}, ErrNotLaunched
	}
	r := reader{}
	info := Info{
		JobID:          jobID,
		WorldSize:      r.number("WORLD_SIZE", 1, maxInt32),
		LocalWorldSize: r.number("LOCAL_WORLD_SIZE", 1, maxInt32),
		Nodes:          r.number("GROUP_WORLD_SIZE", 1, maxInt32),
		MasterAddr:     os.Getenv("MASTER_ADDR"),
		MasterPort:     r.number("MASTER_PORT", 1, 65535),
		StoreHosted:    os.Getenv("TORCHELASTIC_USE_AGENT_STORE") == "True",
		Attempt:        r.number("TORCHELASTIC_RESTART_COUNT", 0, maxInt32),
		MaxRestarts:    r.number("TORCHELASTIC_MAX_RESTARTS", 0, maxInt32),
		ErrorFile:      os.Getenv("TORCHELASTIC_ERROR_FILE"),
		NoticeFile:     os.Getenv("GOLAUNCH_NOTICE_FILE"),
		HeartbeatFile:  os.Getenv("GOLAUNCH_HEARTBEAT_FILE"),
		Ports:          os.Getenv("GOLAUNCH_PORTS"),
		NodeName:       os.Getenv("GOLAUNCH_NODE"),
		GPUUUID:        os.Getenv("GOLAUNCH_GPU_UUID"),
	}
	info.Rank = r.number("RANK", 0, below(info.WorldSize))
	info.LocalRank = r.number("LOCAL_RANK", 0, below(info.LocalWorldSize))
	info.NodeRank = r.number("GROUP_RANK", 0, below(info.Nodes))
	if info.MasterAddr == "" {
		r.errs = append(r.errs, errors.New("MASTER_ADDR is not set"))
	}
	if len(r.errs) > 0 {
		return Info{}, fmt.Errorf("read this rank's environment: %w", errors.Join(r.errs...))
	}
	return info, nil
}

// Master is the host:port of the job's store, which rank 0 or golaunch serves.
func (i Info) Master() string { return net.JoinHostPort(i.MasterAddr, strconv.Itoa(i.MasterPort)) }

// ReportError stores err and the stack of the calling goroutine for the launcher. If the rank then
// ends with a non-zero code, the launcher reports err as the cause. It writes to
// TORCHELASTIC_ERROR_FILE, as torch's @record does
// (torch/distributed/elastic/multiprocessing/errors/error_handler.py). ReportError does nothing if
// that variable is not set. A later report replaces an earlier one.
func (i Info) ReportError(err error) error {
	if i.ErrorFile == "" {
		return nil
	}
	type extra struct {
		Stack     string `json:"py_callstack"`
		Timestamp string `json:"timestamp"`
	}
	type message struct {
		Message string `json:"message"`
		Extra   extra  `json:"extraInfo"`
	}
	text, failed := json.Marshal(map[string]message{"message": {
		Message: err.Error(),
		// The launcher shows only the stack, so the message is in the stack too.
		Extra: extra{fmt.Sprintf("%v\n\n%s", err, debug.Stack()), strconv.FormatInt(time.Now().Unix(), 10)},
	}})
	if failed == nil {
		failed = os.WriteFile(i.ErrorFile, text, 0o600)
	}
	if failed != nil {
		return fmt.Errorf("report the error of rank %d: %w", i.Rank, failed)
	}
	return nil
}

// Beat reports that this rank has finished a step, counted from 0. total is the number of steps, 0
// if unknown. Once a rank has called Beat, it must call Beat at least every --hang-timeout, or its
// attempt fails. Without a launcher, Beat does nothing.
func (i Info) Beat(step, total int64) error {
	if i.HeartbeatFile == "" {
		return nil
	}
	if err := os.WriteFile(i.HeartbeatFile, fmt.Appendln(nil, step, total), 0o600); err != nil {
		return fmt.Errorf("heartbeat of rank %d: %w", i.Rank, err)
	}
	return nil
}

const maxInt32 = 1<<31 - 1

// below returns the largest position among n. If n could not be read, it returns no real limit, so
// that only the error about n is reported.
func below(n int) int {
	if n == 0 {
		return maxInt32
	}
	return n - 1
}

// reader reads variables, and collects the errors of all of them.
type reader struct{ errs []error }

func (r *reader) number(name string, least, most int) int {
	text, ok := os.LookupEnv(name)
	if !ok {
		r.errs = append(r.errs, fmt.Errorf("%s is not set", name))
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		r.errs = append(r.errs, fmt.Errorf("%s=%q is not a number from %d to %d", name, text, least, most))
		return 0
	}
	return n
}
