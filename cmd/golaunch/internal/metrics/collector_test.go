package metrics

import "github.com/golaunch/golaunch/cmd/golaunch/internal/view"

// Model has the newest State; a [view.Model] does.
type Model interface{ State() *view.State }

// New returns a Collector of the states of models.
func New(level Level, models ...Model) *Collector {
	return &Collector{Level: level, States: func() (all []*view.State) {
		for _, m := range models {
			all = append(all, m.State())
		}
		return all
	}}
}
