package group_test

import (
	"os"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerVar) != "" {
		os.Exit(beWorker())
	}
	suite.Main(m)
}
