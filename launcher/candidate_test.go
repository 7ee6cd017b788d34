package launcher

import (
	"fmt"
	"testing"

	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/launcher/internal/schedenv"
	"github.com/golaunch/golaunch/placement"
)

// TestCandidate: a node takes part in elections only if another node could lead the job after it.
func TestCandidate(t *testing.T) {
	for _, c := range []struct {
		nodes, spares int
		place         *schedenv.Place
		want          bool
	}{
		{nodes: 1},
		{nodes: 2},
		{nodes: 1, spares: 1},
		{nodes: 2, spares: 1, want: true},
		{nodes: 3, want: true},
		{nodes: 3, place: &schedenv.Place{By: "Slurm"}, want: true},
		{nodes: 3, place: &schedenv.Place{Port: 29400}, want: true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			j := Job{Resources: Resources{Spares: c.spares}, place: c.place}
			j.Resources.MinNodes, j.Resources.MaxNodes = 1, c.nodes
			s := newLocalRun(j).candidate(placement.Node{Name: "n0"}, mtls.Token{}, "", "")
			if s != nil {
				s.Close()
			}
			if got := s != nil; got != c.want {
				t.Errorf("a candidate: %v", got)
			}
		})
	}
}
