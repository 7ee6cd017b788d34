//go:build race

package rendezvous

import (
	"runtime"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// If a timer of a synctest bubble fires at once, it runs on the thread that made it. All such
// timers use the bubble's only context of the race detector, which crashes if two threads use it at
// the same time (Go 1.26, runtime.(*timer).modify). bufconn makes four such timers for each
// connection, and two for a deadline that has passed.
func init() {
	runtime.GOMAXPROCS(1)
	if !suite.All() {
		losses, manyJobs, submitEvery = 3, 2, lease/200
	}
}
