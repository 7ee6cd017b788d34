package main

import (
	"encoding/json"
	"fmt"

	"github.com/golaunch/golaunch/launcher"
)

// version prints which golaunch this is.
func version(io *streams, args []string) (int, error) {
	v := launcher.BuildVersion()
	if len(args) == 1 && args[0] == "--json" {
		return 0, json.NewEncoder(io.stdout).Encode(v)
	}
	if len(args) > 0 {
		return 0, fmt.Errorf("%w: version takes --json or nothing", launcher.ErrUsage)
	}
	_, err := fmt.Fprintln(io.stdout, v)
	return 0, err
}
