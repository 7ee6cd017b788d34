package rendezvous

import (
	"testing"

	"github.com/golaunch/golaunch/internal/mutants"
)

func TestMutants(t *testing.T) { mutants.MustDie(t) }
