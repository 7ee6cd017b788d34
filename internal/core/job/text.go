package job

import (
	"cmp"
	"fmt"
	"strings"
)

func (Submitted) event() {}
func (Joined) event()    {}
func (Lost) event()      {}
func (Rejoined) event()  {}
func (Draining) event()  {}
func (Ready) event()     {}
func (Prepared) event()  {}
func (Reached) event()   {}
func (Started) event()   {}
func (Met) event()       {}
func (Stalled) event()   {}
func (Stepped) event()   {}
func (Exited) event()    {}
func (Stopped) event()   {}
func (Elapsed) event()   {}
func (TimedOut) event()  {}
func (Queued) event()    {}
func (Cancel) event()    {}

func (Prepare) action()    {}
func (Admit) action()      {}
func (Reach) action()      {}
func (Start) action()      {}
func (Notice) action()     {}
func (Stop) action()       {}
func (Wait) action()       {}
func (Alarm) action()      {}
func (Quarantine) action() {}
func (Finish) action()     {}

// The texts of events and actions are for logs and traces.

func (Submitted) String() string { return "submitted" }
func (e Joined) String() string  { return "joined " + named(e.Node) }
func (e Lost) String() string    { return fmt.Sprintf("lost %s: %s", e.Node, e.Why) }
func (e Ready) String() string   { return "ready " + of(e.Unit, e.Attempt, e.Node) }
func (e Draining) String() string {
	return fmt.Sprintf("draining %s within %v: %s", e.Node, e.Within, e.Why)
}
func (e Rejoined) String() string { return "rejoined " + e.Node }

func (e Prepared) String() string {
	if !e.Unable.OK() {
		return fmt.Sprintf("unable %s: %v", of(e.Unit, e.Attempt, e.Node), e.Unable)
	}
	if e.Err != "" {
		return fmt.Sprintf("prepared %s failed: %s", of(e.Unit, e.Attempt, e.Node), e.Err)
	}
	return fmt.Sprintf("prepared %s port %d", of(e.Unit, e.Attempt, e.Node), e.Port)
}

func (e Reached) String() string {
	if !e.Unable.OK() {
		return fmt.Sprintf("unable %s #%d: %v", e.Node, e.Seq, e.Unable)
	}
	if e.Err != "" {
		return fmt.Sprintf("not reached from %s #%d: %s", e.Node, e.Seq, e.Err)
	}
	return fmt.Sprintf("reached from %s #%d", e.Node, e.Seq)
}

func (e Started) String() string { return "started " + of(e.Unit, e.Attempt, e.Node) }
func (e Met) String() string {
	return fmt.Sprintf("met %s: %s", of(e.Unit, e.Attempt, e.Node), cmp.Or(e.Why, "well"))
}
func (e Stopped) String() string { return "stopped " + of(e.Unit, e.Attempt, e.Node) }

func (e Stalled) String() string {
	if len(e.Ranks) == 0 {
		return "moving " + of(e.Unit, e.Attempt, e.Node)
	}
	return fmt.Sprintf("stalled %s: %s", of(e.Unit, e.Attempt, e.Node), count(len(e.Ranks)+e.More, "rank"))
}

func (e Stepped) String() string {
	return fmt.Sprintf("stepped %s: step %d", of(e.Unit, e.Attempt, e.Node), e.Step)
}

func (e Exited) String() string {
	return fmt.Sprintf("rank %d of %s %v", e.Rank, of(e.Unit, e.Attempt, e.Node), e.Exit)
}

func (e Elapsed) String() string  { return fmt.Sprintf("elapsed unit %d attempt %d", e.Unit, e.Attempt) }
func (e TimedOut) String() string { return fmt.Sprintf("timed out %s #%d", e.Kind, e.Seq) }
func (e Queued) String() string   { return "queued: " + e.Why }

func (e Cancel) String() string {
	if e.Within > 0 {
		return fmt.Sprintf("cancel with code %d within %v: %s", e.Code, e.Within, e.Why)
	}
	return fmt.Sprintf("cancel with code %d: %s", e.Code, e.Why)
}

func (a Admit) String() string {
	return fmt.Sprintf("admit %s at %s", count(len(a.Peers), "peer"), a.Node)
}
func (a Prepare) String() string { return "prepare " + of(a.Unit, a.Attempt, a.Node) }

func (a Reach) String() string {
	text := fmt.Sprintf("reach %s from %s #%d", endpoint(a.Addr, a.Port), a.Node, a.Seq)
	if a.Late {
		text += " late"
	}
	return text
}

func (a Start) String() string {
	b := a.Group.Bundles
	return fmt.Sprintf("start %s ranks %d-%d of %d, node rank %d of %d, master %s port %d", of(a.Unit, a.Attempt, a.Group.Node.Name),
		b[0].Rank, b[len(b)-1].Rank, a.World.WorldSize, a.Group.NodeRank, a.World.Nodes, a.World.MasterAddr, a.World.MasterPort)
}

func (a Notice) String() string {
	return fmt.Sprintf("notice %s within %v: %s", of(a.Unit, a.Attempt, a.Node), a.Within, a.Why)
}

func (a Stop) String() string {
	if a.Kill {
		return "kill " + of(a.Unit, a.Attempt, a.Node)
	}
	text := fmt.Sprintf("stop %s grace %v", of(a.Unit, a.Attempt, a.Node), a.Grace)
	if a.Signal != 0 {
		text += fmt.Sprintf(" signal %d", a.Signal)
	}
	if a.Evidence != NoEvidence {
		text += " after a " + string(a.Evidence)
	}
	return text
}

func (a Wait) String() string {
	text := fmt.Sprintf("wait unit %d attempt %d restarts %d", a.Unit, a.Attempt, a.Restarts)
	if a.Long {
		text += " long"
	}
	return text
}

func (a Alarm) String() string {
	text := fmt.Sprintf("alarm %s #%d", a.Kind, a.Seq)
	if a.For > 0 {
		text += fmt.Sprintf(" for %v", a.For)
	}
	return text
}

func (a Quarantine) String() string { return fmt.Sprintf("quarantine %s: %s", a.Node, a.Why) }

func (a Finish) String() string {
	return fmt.Sprintf("finish with code %d: %s", a.Result.Code, a.Result.Reason)
}

func endpoint(addr string, port int) string {
	if strings.Contains(addr, ":") { // IPv6
		addr = "[" + addr + "]"
	}
	return fmt.Sprintf("%s:%d", addr, port)
}

func of(unit, attempt int, node string) string {
	return fmt.Sprintf("unit %d attempt %d on %s", unit, attempt, node)
}
