package gpu

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/host/helper"
)

// childName is the argv[0] of a probe. Its only argument is its time to live.
const childName = "gpuprobe"

// report is the output of a probe.
type report struct {
	Devices []Device
	Why     string
	Err     string
	// Lost says that Err is about a lost GPU.
	Lost bool
}

// init runs the child. The child must never reach main, which knows nothing of probes.
func init() {
	if !helper.Is(childName) {
		return
	}
	limit, err := time.ParseDuration(os.Args[len(os.Args)-1])
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", childName, err)
		os.Exit(2)
	}
	// The parent may be killed before it can kill this group.
	time.AfterFunc(limit, func() { _ = syscall.Kill(-os.Getpid(), syscall.SIGKILL) })
	var r report
	r.Devices, r.Why, err = survey(newLibrary())
	if err != nil {
		r.Err, r.Lost = err.Error(), is(err, gpuIsLost, resetRequired)
	}
	if json.NewEncoder(os.Stdout).Encode(r) != nil {
		os.Exit(1)
	}
	os.Exit(0)
}
