package fabric

import (
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// golaunch is the command whose processes are ranks.
var golaunch string

func TestMain(m *testing.M) { suite.MainWith(m, &golaunch) }
