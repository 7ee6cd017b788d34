// Command meter is a program that reads GPUs once for each line that it is sent. Its argument is
// the deadline.
package main

import (
	"bufio"
	"context"
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
	meter := gpu.NewMeter()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		readings, err := meter.Read(ctx)
		cancel()
		fmt.Printf("%+v %v\n", readings, err)
	}
	if err := meter.Close(); err != nil {
		panic(err)
	}
}
