package election

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/golaunch/golaunch/internal/wire/quorum"
)

// TestVoterQueue checks that nodes come in their order, except for nodes that have left. A
// returning node has its new identity.
func TestVoterQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var n voterQueue
		want := map[string]quorum.Voter{}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "node")
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				want[name] = quorum.Voter{ID: uint64(i + 1), Name: name}
				n.add(want[name])
			case 1:
				delete(want, name)
				n.remove(name)
			case 2:
				v, any := n.next()
				if any != (len(want) > 0) || any && want[v.Name] != v {
					t.Fatalf("%+v, %v, want one of %v", v, any, want)
				}
				delete(want, v.Name)
			}
			if len(n.order) != len(n.byName) {
				t.Fatalf("%d in order, %d known", len(n.order), len(n.byName))
			}
		}
	})
	var n voterQueue
	for i := range 3 {
		n.add(quorum.Voter{ID: 1, Name: fmt.Sprint(i)})
	}
	for i := range 3 {
		if v, _ := n.next(); v.Name != fmt.Sprint(i) {
			t.Errorf("%s comes as number %d", v.Name, i)
		}
	}
}
