package gpu

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
)

// MPSDirectory is the variable with the directory of the pipes of CUDA MPS.
const MPSDirectory = "CUDA_MPS_PIPE_DIRECTORY"

// MPS reports whether a control daemon of CUDA MPS has its pipes in a directory; the daemon's
// default if that is empty. The daemon keeps a file with its pid there
// (https://docs.nvidia.com/deploy/mps/appendix-tools-and-interface-reference.html). The pid is not
// checked, because it may be of another container. Pipes that a killed daemon has left do no harm:
// CUDA then runs without MPS.
func MPS(directory string) bool {
	_, err := os.Stat(filepath.Join(cmp.Or(directory, "/tmp/nvidia-mps"), "nvidia-cuda-mps-control.pid"))
	return err == nil
}

// mpsServer reports whether a process is the server of CUDA MPS. It keeps its context on the GPUs
// for the next clients, and so does not hold them. The kernel keeps 15 bytes of its name.
func mpsServer(pid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err == nil && string(name) == "nvidia-cuda-mps\n"
}
