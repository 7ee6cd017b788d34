package job

// sever notes the attempts that fail because nodes do not reach the master: those that are about to
// begin, and with them those that run beside it.
func (t *truth) sever(ev Event, actions []Action) {
	if !isA[Reached](ev) && !isA[Lost](ev) || !t.severed() || t.w.state.ending.result != nil {
		return
	}
	for _, a := range actions {
		switch a := a.(type) {
		case Wait:
			if old := (attemptOf{a.Unit, a.Attempt - 1}); t.newest[a.Unit] == old.attempt-1 && t.elapsed[old] {
				t.newest[a.Unit], t.unheard = old.attempt, t.asked.node
				t.fail(old, reported{rank: -1})
				t.seen["severed"] = true
			}
		case Stop:
			if at := (attemptOf{a.Unit, a.Attempt}); a.Node == t.asked.node && len(t.failed[at]) == 0 && !t.evacuated[at] {
				t.fail(at, reported{rank: -1})
			}
		}
	}
}

// severed says that a node does not reach the master.
func (t *truth) severed() bool {
	for _, ask := range t.reach {
		if t.cut[ask] {
			return true
		}
	}
	return false
}
