package health

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/golaunch/golaunch/internal/host/gpu"
)

// libraryDirs are the directories of libraries in Debian and Red Hat on amd64 and arm64.
var libraryDirs = []string{"usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/lib"}

// efaDirs is where EFA's installer puts libfabric.
var efaDirs = []string{"opt/amazon/efa/lib", "opt/amazon/efa/lib64"}

// versions reads, from file names, the versions that nodes should have in common. It loads no
// library and runs no program.
func (s System) versions(gpus []gpu.Device) Versions {
	v := Versions{}
	for name, text := range map[string]string{
		GPUs:      kinds(gpus),
		Kernel:    s.text("proc/sys/kernel/osrelease"),
		Driver:    driverVersion(s.text("proc/driver/nvidia/version")),
		NCCL:      s.library("libnccl.so.2", libraryDirs),
		Libfabric: s.library("libfabric.so.1", append(efaDirs, libraryDirs...)),
		EFA:       efaVersion(s.text("opt/amazon/efa_installed_packages")),
		Python:    s.python(),
	} {
		if text != "" {
			v[name] = text
		}
	}
	return v
}

// kinds counts GPUs by name: "8 NVIDIA H200".
func kinds(gpus []gpu.Device) string {
	var parts []string
	for i := 0; i < len(gpus); {
		n := i
		for n < len(gpus) && gpus[n].Name == gpus[i].Name {
			n++
		}
		parts = append(parts, fmt.Sprintf("%d %s", n-i, gpus[i].Name))
		i = n
	}
	return strings.Join(parts, " + ")
}

// driverVersion is the first word like 570.86.10 in /proc/driver/nvidia/version:
// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.10  Tue ...".
func driverVersion(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	for word := range strings.FieldsSeq(line) {
		if strings.Trim(word, "0123456789.") == "" && strings.Contains(word, ".") {
			return word
		}
	}
	return ""
}

// efaVersion reads "# EFA installer version: 1.38.0", the first line of the list of EFA's packages.
func efaVersion(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	version, found := strings.CutPrefix(line, "# EFA installer version: ")
	if !found {
		return ""
	}
	return strings.TrimSpace(version)
}

// library is the version in the name of the file to which a link such as libnccl.so.2 leads. The
// first link counts.
func (s System) library(link string, dirs []string) string {
	base, _, _ := strings.Cut(link, ".so.")
	for _, dir := range dirs {
		target, err := fs.ReadLink(s.Root, path.Join(dir, link))
		if err != nil {
			continue
		}
		if version, found := strings.CutPrefix(path.Base(target), base+".so."); found {
			return version
		}
	}
	return ""
}

// python is the interpreter that the command python3 would run, and the active environment.
func (s System) python() string {
	var parts []string
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if value, _ := s.Getenv(name); value != "" {
			parts = append(parts, name+"="+value)
		}
	}
	dirs, _ := s.Getenv("PATH")
	for dir := range strings.SplitSeq(dirs, ":") {
		file := path.Join(dir, "python3")
		if !path.IsAbs(file) || !s.exists(file[1:]) {
			continue
		}
		if target, err := fs.ReadLink(s.Root, file[1:]); err == nil {
			file += " (" + path.Base(target) + ")"
		}
		return strings.Join(append([]string{file}, parts...), ", ")
	}
	return strings.Join(parts, ", ")
}
