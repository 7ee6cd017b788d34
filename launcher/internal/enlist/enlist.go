// Package enlist gives an agent on another node, which golaunch starts, the description of its job.
package enlist

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/helper"
	"github.com/golaunch/golaunch/launcher/internal/simnode"
)

// Variable is the environment variable that holds an agent's enlistment. If it is not set, the
// agent reads the enlistment from its standard input. Other users of the machine can read neither.
const Variable = helper.Enlistment

// Enlistment is what an agent of a job must know before it joins.
type Enlistment[Job any] struct {
	Job Job
	// Coordinator is ADDRESS:PORT, and Token the secret of this job alone.
	Coordinator, Token string
	// Run is the ID of the run, as in jobdir.Run.
	Run string
	// Tied says that the node must end when its standard input ends.
	Tied bool
	// Slots is how many of its GPUs the node offers; 0 means all.
	Slots int
}

// ErrUnstarted says why agents could not be started.
var ErrUnstarted = errors.New("cannot start golaunch on the nodes")

// Golaunch is the path of the golaunch command on other machines: the chosen path, or else the one
// in this machine's PATH.
func Golaunch(chosen string) (string, error) {
	if chosen != "" {
		return chosen, nil
	}
	path, err := exec.LookPath("golaunch")
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w; install golaunch here and there at the same path", ErrUnstarted, err)
	}
	return path, nil
}

// Read reads the enlistment of this process.
func Read[Job any]() (e Enlistment[Job], err error) {
	in := io.Reader(os.Stdin)
	if text, ok := os.LookupEnv(Variable); ok {
		in = strings.NewReader(text)
	}
	err = os.Unsetenv(Variable) // other users may be able to read the environment of processes that this one starts
	// The token is in this process's memory: keep it from core files and from the user's other
	// processes.
	err = errors.Join(err, unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
	if err == nil {
		d := json.NewDecoder(io.LimitReader(in, simnode.MaxOrder))
		d.DisallowUnknownFields()
		err = d.Decode(&e)
	}
	if err != nil {
		return e, fmt.Errorf("this process should have been told what its job is: %w; install the same golaunch on all nodes", err)
	}
	return e, nil
}

// Signals returns the signals of this process. If the process is tied to its standard input, the
// end of the input counts as SIGHUP.
func (e Enlistment[Job]) Signals() <-chan os.Signal {
	heard := make(chan os.Signal, 8)
	signal.Notify(heard, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // so that a write to a lost console fails and does not end the process
	if e.Tied {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			heard <- syscall.SIGHUP
		}()
	}
	return heard
}
