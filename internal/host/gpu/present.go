package gpu

import (
	"os"
	"path/filepath"
	"slices"
)

// noLibrary is the usual reason for no GPU.
const noLibrary = "no NVIDIA driver: libnvidia-ml.so.1 not found"

// traces are files that exist if an NVIDIA driver was loaded; /dev/dxg is WSL's. They include the
// usual places of the library, because on a machine that has just booted the first caller of NVML
// loads the kernel module.
var traces = []string{
	"/proc/driver/nvidia/version",
	"/dev/nvidiactl",
	"/dev/dxg",
	"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
	"/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
	"/usr/lib64/libnvidia-ml.so.1",
	"/usr/lib/libnvidia-ml.so.1",
	"/usr/local/nvidia/lib64/libnvidia-ml.so.1",
	"/run/opengl-driver/lib/libnvidia-ml.so.1",
}

// present reports whether a probe is worth its start. Without a trace there is no driver.
func present(libraryPath string) bool {
	for _, dir := range filepath.SplitList(libraryPath) {
		if exists(filepath.Join(dir, "libnvidia-ml.so.1")) {
			return true
		}
	}
	return slices.ContainsFunc(traces, exists)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
