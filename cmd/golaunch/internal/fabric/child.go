package fabric

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/host/helper"
	"github.com/golaunch/golaunch/nccl/dl"
)

// childName is the argv[0] of the helper process that tests one GPU. Its argument is a child in
// JSON.
const childName = "golaunch-allreduce"

// child is the input of the helper process of a GPU.
type child struct {
	Library         string
	GPU, Rank, Size int
	// Make is true if the process makes the communicator's ID. All processes read the ID from
	// standard input.
	Make  bool
	Limit time.Duration
}

// report is the JSON that the process writes to the descriptor helper.First at the beginning of
// each stage, and at the end, with Done.
type report struct {
	Stage, ID string
	Figures
	Library, File, Err, Code string
	Done, Killed             bool
}

func init() {
	if !helper.Is(childName) {
		return
	}
	var c child
	if err := json.Unmarshal([]byte(os.Args[len(os.Args)-1]), &c); err != nil {
		os.Exit(2)
	}
	// The process kills its own process group at the limit, since the parent may have been killed
	// before it could do so.
	time.AfterFunc(c.Limit, func() { _ = syscall.Kill(-os.Getpid(), syscall.SIGKILL) })
	w := worker{child: c, out: json.NewEncoder(os.NewFile(helper.First, "reports"))}
	if err := w.work(); err != nil {
		w.report.Err = err.Error()
	}
	w.report.Done = true
	w.say("")
	os.Exit(0)
}

// worker is a running child. If it cannot write a report, its parent has ended, and the time limit
// ends the child.
type worker struct {
	child
	report
	out *json.Encoder
}

// say begins a stage. A failure in the stage is reported with w.Code, unless that is empty.
func (w *worker) say(stage string) {
	w.Stage = stage
	_ = w.out.Encode(w.report)
	w.report.ID = ""
}

func (w *worker) work() error {
	w.Code = "fabric-nccl"
	w.say("loading libnccl")
	l, err := dl.Open(cmp.Or(w.child.Library, pythons()))
	if err != nil {
		return err
	}
	v, err := l.Version()
	if err != nil {
		return err
	}
	w.report.Library, w.File = v.String(), l.Path()
	w.say("taking the GPU into use")
	d, err := dl.OpenDevice(w.GPU)
	if err != nil {
		return err
	}
	id, err := w.meet(l)
	if err != nil {
		return err
	}
	w.Code = ""
	w.say(fmt.Sprintf("joining the communicator as rank %d of %d", w.Rank, w.Size))
	c, err := l.Join(d, id, w.Rank, w.Size)
	if err != nil {
		return err
	}
	w.say("reducing")
	if w.Latency, w.Bandwidth, err = c.Measure(); err != nil {
		return err // the end of the process aborts the communicator
	}
	w.say("leaving the communicator")
	return errors.Join(c.Close(), d.Close())
}

// meet returns the communicator's ID, which one of the children makes.
func (w *worker) meet(l *dl.Library) (id dl.UniqueID, err error) {
	if w.Make {
		w.say("making a communicator")
		if id, err = l.NewID(); err != nil {
			return id, err
		}
		w.ID = hex.EncodeToString(id.Bytes[:])
	}
	w.say("waiting for the communicator's ID")
	var m meeting
	if err := json.NewDecoder(os.Stdin).Decode(&m); err != nil {
		return id, fmt.Errorf("get the communicator's ID: %w", err)
	}
	if n, err := hex.Decode(id.Bytes[:], []byte(m.ID)); err != nil || n != len(id.Bytes) {
		return id, fmt.Errorf("%q is no ID of a communicator", m.ID)
	}
	return id, nil
}

// pythons finds the libnccl of PyTorch in the active Python environment, which a job's ranks load
// too; empty if there is none.
func pythons() string {
	for _, env := range []string{os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX")} {
		found, _ := filepath.Glob(filepath.Join(env, "lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2")) // the pattern is good
		if env != "" && len(found) > 0 {
			return found[0]
		}
	}
	return ""
}
