//go:build race

package rendezvous

import (
	"runtime"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// A timer of a synctest bubble that fires at once runs on the thread that made it, and all use the
// bubble's only context of the race detector: on two threads at a time it crashes (Go 1.26,
// runtime.(*timer).modify). bufconn makes four such timers for each connection, and two for a
// deadline that is over.
func init() {
	runtime.GOMAXPROCS(1)
	if !suite.All() {
		losses, manyJobs, submitEvery = 3, 2, lease/200
	}
}
