// Command list is a program that uses the package and knows nothing of probes. Its argument is the
// deadline.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/golaunch/golaunch/internal/host/gpu"
)

func main() {
	limit, err := time.ParseDuration(os.Args[1])
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	devices, why, err := gpu.List(ctx)
	if err := json.NewEncoder(os.Stdout).Encode(devices); err != nil {
		panic(err)
	}
	fmt.Fprintln(os.Stderr, why, err)
}
