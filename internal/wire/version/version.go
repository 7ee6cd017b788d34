// Package version says which golaunch this is.
package version

import (
	_ "embed"
	"runtime/debug"
	"strings"

	"github.com/golaunch/golaunch/internal/host/lazyregexp"
)

// file has the version of the last or the next release, without a v. It exists because not every
// clone has the tags.
//
//go:embed VERSION
var file string

// released is set in the binaries of a release (tools/dist).
var released string

// String is v1.2.3 for a release, and v1.2.3+devel with the commit for a later build.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return of(strings.TrimSpace(file), released != "", info)
}

const module = "github.com/golaunch/golaunch"

// pseudo matches the end of a version that the go command makes for a commit
// (https://go.dev/ref/mod#pseudo-versions).
var pseudo = lazyregexp.New(`\d{14}-([0-9a-f]{12})$`)

func of(version string, released bool, info *debug.BuildInfo) string {
	version = "v" + version
	this, settings := info.Main.Version, info.Settings
	for _, m := range info.Deps {
		if m.Path == module { // another program imports golaunch
			this, settings = m.Version, nil
		}
	}
	if released || this == version {
		return version
	}
	commit, dirty := "", ""
	if m := pseudo.Get().FindStringSubmatch(this); m != nil {
		commit = "." + m[1]
	}
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			commit = "." + s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = ".dirty"
		}
	}
	return version + "+devel" + commit + dirty
}
