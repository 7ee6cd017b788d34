// Package rankenv turns the facts about one rank into the environment of its process, and back.
//
// The launcher uses [Vars] and [Merge]. Vars returns torchrun's variables with torchrun's values,
// and golaunch's own. Merge combines them with the variables that the user sets, that the launcher
// inherits, and that a preset adds. Every variable has its source and reason.
//
// Trainers in Go use [Current]:
//
//	me, err := rankenv.Current()
//	if err != nil {
//		log.Fatal(err)
//	}
//	fmt.Printf("rank %d of %d, rank 0 listens at %s\n", me.Rank, me.WorldSize, me.Master())
//
// It reads only torchrun's names, so the same trainer also runs under torchrun.
package rankenv

// Var is an environment variable with its source and reason.
type Var struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source Source `json:"source"`
	// Reason says why the variable has this value or, in [Env.Dropped], why it is not set.
	Reason string `json:"reason"`
}

// Source is the origin of a variable. If two sources set the same name, the precedence is [User],
// then [Torch] and [Golaunch], then [Inherited], then [Preset], then [Default].
type Source string

const (
	// User is an explicit --env NAME=value. It takes precedence over everything.
	User Source = "user"
	// Torch is a fact about the rank under torchrun's name. It takes precedence over an inherited
	// variable, because an inherited RANK is the rank of another process.
	Torch Source = "torch"
	// Golaunch is a fact about the rank for which torchrun has no name.
	Golaunch Source = "golaunch"
	// Inherited is the environment of the golaunch process on the rank's node.
	Inherited Source = "inherited"
	// Preset is a setting of package nccl for the fabric.
	Preset Source = "preset"
	// Default is a setting that yields to any other.
	Default Source = "default"
)

func (s Source) precedence() int {
	switch s {
	case User:
		return 5
	case Torch, Golaunch:
		return 4
	case Inherited:
		return 3
	case Preset:
		return 2
	default:
		return 1
	}
}

func (v Var) beats(w Var) bool { return v.Source.precedence() > w.Source.precedence() }

func (v Var) pair() string { return v.Name + "=" + v.Value }
