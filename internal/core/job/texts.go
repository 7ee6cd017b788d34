package job

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/golaunch/golaunch/internal/core/lighthouse"
	"github.com/golaunch/golaunch/internal/core/words"
)

// The texts of events and actions are for logs and traces.

func (Submitted) String() string { return "submitted" }

func (e Joined) String() string { return "joined " + words.Named(e.Node) }

func (e Lost) String() string { return fmt.Sprintf("lost %s: %s", e.Node, e.Why) }

func (e Ready) String() string { return "ready " + of(e.Unit, e.Attempt, e.Node) }

func (e Catching) String() string { return "catching " + of(e.Unit, e.Attempt, e.Node) }

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
	return fmt.Sprintf("stalled %s: %s", of(e.Unit, e.Attempt, e.Node), words.Count(len(e.Ranks)+e.More, "rank"))
}

func (e Stepped) String() string {
	return fmt.Sprintf("stepped %s: step %d", of(e.Unit, e.Attempt, e.Node), e.Step)
}

func (e Saved) String() string {
	return fmt.Sprintf("save %s %s: %s", of(e.Unit, e.Attempt, e.Node), e.State, e.Path)
}

func (e Exited) String() string {
	return fmt.Sprintf("rank %d of %s %v", e.Rank, of(e.Unit, e.Attempt, e.Node), e.Exit)
}

func (e Cohort) String() string {
	return fmt.Sprintf("quorum %d: %s", e.ID, cmp.Or(e.Why, lighthouse.Groups(e.Members)))
}

func (e Elapsed) String() string { return fmt.Sprintf("elapsed unit %d attempt %d", e.Unit, e.Attempt) }

func (e TimedOut) String() string { return fmt.Sprintf("timed out %s #%d", e.Kind, e.Seq) }

func (e Queued) String() string { return "queued: " + e.Why }

func (e Cancel) String() string {
	if e.Within > 0 {
		return fmt.Sprintf("cancel with code %d within %v: %s", e.Code, e.Within, e.Why)
	}
	return fmt.Sprintf("cancel with code %d: %s", e.Code, e.Why)
}

// String names the GPUs for people: "n3: gpu0, gpu5 are free now".
func (e Freed) String() string {
	switch n := len(e.GPUs); {
	case n == 1:
		return fmt.Sprintf("%s: gpu%d is free now", e.Node, e.GPUs[0])
	case n > shownGPUs:
		return fmt.Sprintf("%s: %d GPUs are free now", e.Node, n)
	}
	names := make([]string, len(e.GPUs))
	for i, index := range e.GPUs {
		names[i] = fmt.Sprint("gpu", index)
	}
	return fmt.Sprintf("%s: %s are free now", e.Node, strings.Join(names, ", "))
}

func (a Admit) String() string {
	return fmt.Sprintf("admit %s at %s", words.Count(len(a.Peers), "peer"), a.Node)
}

func (a Prepare) String() string { return "prepare " + of(a.Unit, a.Attempt, a.Node) }

func (a Reach) String() string {
	text := fmt.Sprintf("reach %s from %s #%d", words.Endpoint(a.Addr, a.Port), a.Node, a.Seq)
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
	if a.Alarm != 0 {
		text += fmt.Sprintf(" from alarm #%d", a.Alarm)
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

func of(unit, attempt int, node string) string {
	return fmt.Sprintf("unit %d attempt %d on %s", unit, attempt, node)
}
