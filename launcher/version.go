package launcher

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version says which golaunch this is.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func (v Version) String() string {
	return fmt.Sprintf("golaunch %s (%s, %s/%s)", v.Version, v.Go, v.OS, v.Arch)
}

// BuildVersion reads what the go command recorded in this binary.
func BuildVersion() Version {
	v := Version{Version: "devel", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
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
