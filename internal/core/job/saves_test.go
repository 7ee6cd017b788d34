package job

import (
	"testing"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
)

func TestSaves(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(1_700_000_000+int64(second), 0) }
	type told struct {
		node   string
		second int
		state  SaveState
		path   string
		shared bool
		want   string
	}
	every := map[string]time.Duration{"one node": 20 * time.Second, "all nodes share it": 30 * time.Second, "one path for all": 9 * time.Second}
	for name, all := range map[string][]told{
		"one node": {
			{"n1", 10, SaveBegan, "/c/1", false, ""},
			{"n1", 20, SaveComplete, "/c/1", false, "/c/1"},
			{"n1", 30, SaveBegan, "/c/2", false, "/c/1"},
			{"n1", 40, SaveComplete, "/c/2", false, "/c/2"},
		},
		"each node has its own": {
			{"n1", 10, SaveBegan, "/c/1", false, ""},
			{"n2", 11, SaveBegan, "/c/1", false, ""},
			{"n2", 20, SaveComplete, "/c/1", false, ""},
			{"n1", 21, SaveComplete, "/c/1", false, "/c/1"},
		},
		"all nodes share it": {
			{"n1", 10, SaveBegan, "/c/1", true, ""},
			{"n2", 11, SaveBegan, "/c/1", true, ""},
			{"n2", 20, SaveComplete, "/c/1", true, "/c/1"},
			{"n1", 21, SaveComplete, "/c/1", true, "/c/1"},
			{"n1", 40, SaveBegan, "/c/2", true, "/c/1"},
			{"n1", 50, SaveComplete, "/c/2", true, "/c/2"},
			{"n2", 50, SaveComplete, "/c/2", true, "/c/2"},
		},
		"one path for all": {
			{"n1", 20, SaveComplete, "/c/last", false, "/c/last"},
			{"n1", 29, SaveComplete, "/c/last", false, "/c/last"},
		},
		"it was too fast to be seen": {{"n1", 20, SaveComplete, "/c/1", false, "/c/1"}},
		"it fails": {
			{"n1", 20, SaveComplete, "/c/1", false, "/c/1"}, {"n1", 30, SaveBegan, "/c/2", false, "/c/1"}, {"n1", 40, SavePartial, "/c/2", false, "/c/1"},
		},
		"an older one is proved later": {
			{"n1", 10, SaveBegan, "/c/1", false, ""},
			{"n1", 30, SaveBegan, "/c/2", false, ""},
			{"n1", 40, SaveComplete, "/c/2", false, "/c/2"},
			{"n1", 41, SaveComplete, "/c/1", false, "/c/2"},
		},
	} {
		var s saves
		for _, told := range all {
			ev := Saved{Node: told.node, State: told.state, Path: told.path, Shared: told.shared, At: at(told.second), Took: time.Second}
			switch told.state {
			case SaveBegan:
				s.begin(ev.save(), told.node)
			case SaveComplete:
				if save, complete := s.prove(ev.save(), told.node, told.shared); complete {
					s.keep(save)
				}
			case SavePartial:
				s.fail(told.path)
			}
			if got := pathOf(s.last); got != told.want {
				t.Errorf("%s: after %v the last is %q, want %q", name, ev, got, told.want)
			}
		}
		if want, known := every[name]; known && s.every != want {
			t.Errorf("%s: a save every %v, want %v", name, s.every, want)
		}
		if len(s.inFlight) > 1 {
			t.Errorf("%s: %v are in flight", name, s.inFlight)
		}
	}
	var s saves
	for i := range 3 * maxInFlight {
		s.begin(report.Save{Path: string(rune('a' + i))}, "n1")
	}
	if len(s.inFlight) != maxInFlight {
		t.Error(len(s.inFlight), "in flight")
	}
}

func pathOf(s *report.Save) string {
	if s == nil {
		return ""
	}
	return s.Path
}
