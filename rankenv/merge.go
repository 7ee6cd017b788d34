package rankenv

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Layers are the sources of the environment of a node's ranks, besides the facts about each rank.
type Layers struct {
	// User has the --env settings, as [ParseEnv] returns them. The last setting of a name wins.
	User []Var
	// Inherited is an environment as [os.Environ] returns it.
	Inherited []string
	// KeepEnv keeps inherited variables of other launchers (--keep-env). Facts about the rank still
	// take precedence, and golaunch's token is still removed.
	KeepEnv bool
}

// Base is the part of the environment that the ranks of a node share. A Base never changes, so any
// goroutine may use it.
type Base struct {
	vars, dropped []Var
	pairs         []string       // vars as NAME=value
	index         map[string]int // the position of each name in vars and pairs
}

// Env is the whole environment of one rank, for people to read.
type Env struct {
	// Vars are the variables that the rank gets, sorted by name, without duplicates.
	Vars []Var
	// Dropped are the variables that were overridden by a variable in Vars, or removed. Reason says
	// which of the two.
	Dropped []Var
}

// Merge returns the part of the environment that all ranks of a node share.
func Merge(l Layers) *Base {
	b := &Base{index: map[string]int{}}
	for _, v := range slices.Backward(l.User) {
		b.add(v)
	}
	for _, pair := range l.Inherited {
		b.inherit(pair, l.KeepEnv)
	}
	return b
}

// Lookup returns the value of a variable; empty if b does not set it.
func (b *Base) Lookup(name string) string {
	if i, ok := b.index[name]; ok {
		return b.vars[i].Value
	}
	return ""
}

// With returns b with further variables, such as those of package nccl. The variables of b have
// precedence. With does not change b.
func (b *Base) With(vars []Var) *Base {
	more := &Base{
		vars: slices.Clone(b.vars), dropped: slices.Clone(b.dropped), pairs: slices.Clone(b.pairs), index: maps.Clone(b.index),
	}
	for _, v := range vars {
		more.add(v)
	}
	return more
}

// add adds a variable, unless b has one with that name. So it must be called in the order of
// precedence.
func (b *Base) add(v Var) {
	if i, ok := b.index[v.Name]; ok {
		b.dropped = append(b.dropped, v.lostTo(b.vars[i]))
		return
	}
	b.index[v.Name] = len(b.vars)
	b.vars = append(b.vars, v)
	b.pairs = append(b.pairs, v.pair())
}

func (b *Base) inherit(pair string, keep bool) {
	name, value, ok := strings.Cut(pair, "=")
	v := Var{Name: name, Value: value, Source: Inherited, Reason: "golaunch's own environment on this node"}
	switch why := foreign(name); {
	case !ok:
		v.Reason = "not NAME=value"
	case secret(name):
		v.Value, v.Reason = "", "a rank never sees golaunch's token"
	case why != "" && !keep:
		v.Reason = why
	default:
		b.add(v)
		return
	}
	b.dropped = append(b.dropped, v)
}

// Environ returns the environment of one rank, for [os/exec.Cmd.Env], without duplicates.
func (b *Base) Environ(f Facts) []string {
	vars := Vars(f)
	out := make([]string, len(b.pairs), len(b.pairs)+len(vars))
	copy(out, b.pairs)
	for _, v := range vars {
		if i, ok := b.index[v.Name]; !ok {
			out = append(out, v.pair())
		} else if v.beats(b.vars[i]) {
			out[i] = v.pair()
		}
	}
	return out
}

// Explain returns the same environment as [Base.Environ], with the source and the reason of each
// variable, and the dropped variables.
func (b *Base) Explain(f Facts) Env {
	e := Env{Vars: slices.Clone(b.vars), Dropped: slices.Clone(b.dropped)}
	for _, v := range Vars(f) {
		i, ok := b.index[v.Name]
		switch {
		case !ok:
			e.Vars = append(e.Vars, v)
		case v.beats(b.vars[i]):
			e.Dropped = append(e.Dropped, b.vars[i].lostTo(v))
			e.Vars[i] = v
		default:
			e.Dropped = append(e.Dropped, v.lostTo(b.vars[i]))
		}
	}
	byName := func(v, w Var) int { return cmp.Compare(v.Name, w.Name) }
	slices.SortFunc(e.Vars, byName)
	slices.SortStableFunc(e.Dropped, byName)
	return e
}

func (v Var) lostTo(w Var) Var {
	v.Reason = "overridden by " + string(w.Source) + " " + w.pair()
	return v
}
