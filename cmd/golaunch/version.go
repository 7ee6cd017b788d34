package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/golaunch/golaunch/launcher"
)

// version prints which golaunch this is.
func version(io *streams, args []string) (int, error) {
	v := readBuild()
	if len(args) == 1 && args[0] == "--json" {
		return 0, json.NewEncoder(io.stdout).Encode(v)
	}
	if len(args) > 0 {
		return 0, fmt.Errorf("%w: version takes --json or nothing", launcher.ErrUsage)
	}
	_, err := fmt.Fprintln(io.stdout, v)
	return 0, err
}

// versionShown says which golaunch this is; docs/json.md is the contract of version --json.
type versionShown struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func (v versionShown) String() string {
	return fmt.Sprintf("golaunch %s (%s, %s/%s)", v.Version, v.Go, v.OS, v.Arch)
}

// readBuild reads what the go command recorded in this binary.
func readBuild() versionShown {
	v := versionShown{Version: "devel", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	return v
}
