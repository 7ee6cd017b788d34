package jobstate

import (
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/mutants"
)

func TestMutants(t *testing.T) { mutants.MustDie(t) }
