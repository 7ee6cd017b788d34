package fabric

import (
	"fmt"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/fabric/pairtests"
	"github.com/golaunch/golaunch/internal/host/health"
	"github.com/golaunch/golaunch/internal/host/hostlist"
)

// judge turns the results into the report.
func (l *leader) judge() {
	verdicts, paths := l.contest.Judge()
	l.report.Kind, l.report.Led = l.kind, true
	for i, v := range verdicts {
		l.report.Nodes = append(l.report.Nodes, l.found(i, v))
	}
	for _, p := range paths {
		l.report.Paths = append(l.report.Paths, Path{l.nodes[p.A].Name, l.nodes[p.B].Name, p.Err})
	}
	for _, f := range l.report.Findings() {
		l.report.Ill = l.report.Ill || f.Warnable.Severity == health.Error
	}
}

// found describes a node by its verdict.
func (l *leader) found(i int, v pairtests.Verdict) Node {
	own := l.own[i]
	n := Node{Name: l.nodes[i].Name, State: v.State, Inside: own.Figures, Library: own.Library, File: own.File}
	alone := v.Evidence.Alone()
	if v.Tested && !alone {
		n.With = l.nodes[v.Evidence.A+v.Evidence.B-i].Name
		n.Between = Figures{v.Evidence.Latency, v.Evidence.Bandwidth}
	}
	switch v.State {
	case pairtests.Bad:
		n.Code, n.Why = "fabric-node", v.Evidence.Err
		if !alone {
			n.Code = "fabric-nic"
		} else if own.Code != "" {
			n.Code = own.Code
		}
	case pairtests.Slow:
		n.Code, n.Why = "fabric-slow", fmt.Sprintf("%.3g GB/s, and others have %.3g GB/s", v.Evidence.Bandwidth, l.contest.Usual(alone))
	case pairtests.Suspect:
		n.Code, n.Why = "fabric-suspect", v.Evidence.Err
	}
	return n
}

// Findings returns the problems, errors first. Nodes with the same problem share a finding.
func (r Report) Findings() (findings []health.Finding) {
	type kind struct{ code, text string }
	alike := map[kind][]string{}
	var order []kind
	var suspects []Node
	for _, n := range r.Nodes {
		k := kind{n.Code, n.Why}
		if n.With != "" {
			k.text = "with " + n.With + ": " + n.Why
		}
		switch {
		case n.Code == "":
			continue
		case n.State == pairtests.Suspect:
			suspects = append(suspects, n)
			continue
		case alike[k] == nil:
			order = append(order, k)
		}
		alike[k] = append(alike[k], n.Name)
	}
	for _, k := range order {
		findings = append(findings, health.Finding{Warnable: health.Find(k.code), Text: k.text, Node: hostlist.Compress(alike[k])})
	}
	if len(suspects) > 0 {
		findings = append(findings, health.Finding{Warnable: health.Find(suspects[0].Code), Text: either(suspects)})
	}
	for _, p := range r.Paths {
		text := fmt.Sprintf("%s and %s: %s", p.A, p.B, p.Why)
		findings = append(findings, health.Finding{Warnable: health.Find("fabric-path"), Text: text})
	}
	findings = append(findings, r.skew()...)
	health.Worst(findings)
	return findings
}

// skew compares the versions of libnccl on the nodes that loaded one.
func (r Report) skew() []health.Finding {
	libraries := map[string]health.Versions{}
	for _, n := range r.Nodes {
		if n.Library != "" {
			libraries[n.Name] = health.Versions{health.NCCL: n.Library}
		}
	}
	return health.Skew(libraries)
}

// shownReasons bounds the failures in one finding.
const shownReasons = 4

// reasons lists the failures of nodes, each once.
func reasons(of []Node) string {
	var all []string
	for _, n := range of {
		if !slices.Contains(all, n.Why) {
			all = append(all, n.Why)
		}
	}
	if more := len(all) - shownReasons; more > 0 {
		all = append(all[:shownReasons], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// either names suspects that have worked with no node, with their failures. At least one of them is
// bad.
func either(suspects []Node) string {
	names := make([]string, len(suspects))
	for i, n := range suspects {
		names[i] = n.Name
	}
	if len(names) > 3 {
		return fmt.Sprintf("some of %s: %s", hostlist.Compress(names), reasons(suspects))
	}
	return strings.Join(names, " or ") + ": " + reasons(suspects)
}
