package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/internal/wire/version"
)

func newVersion(s *cli.Console) *cobra.Command {
	asJSON := false
	c := cli.NewVerb("version [--json]", "print the version", cli.Args(0, 0))
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = s.Run(func(*cobra.Command, []string) (int, error) {
		if asJSON {
			return 0, jsonout.Print(s.Stdout, new(readBuild()))
		}
		_, err := fmt.Fprintln(s.Stdout, readBuild())
		return 0, err
	})
	return c
}

// version --json prints this; docs/json.md is its contract.
type versionShown struct {
	jsonout.Header
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func (v versionShown) String() string {
	return fmt.Sprintf("golaunch %s (%s, %s/%s)", v.Version, v.Go, v.OS, v.Arch)
}

// readBuild reads the facts that the go command recorded in this binary.
func readBuild() versionShown {
	v := versionShown{Version: version.String(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	return v
}
