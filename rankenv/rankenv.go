// Package rankenv turns what is known about one rank into the environment of its process, and back.
//
// The launcher's side is [Vars], which gives a rank torchrun's variables with torchrun's values and golaunch's own, and [Merge],
// which lays them over what the user set, inherited and chose as a preset. Every variable says where it came from and why.
//
// The trainer's side, for trainers written in Go, is [Current]:
//
//	me, err := rankenv.Current()
//	if err != nil {
//		log.Fatal(err)
//	}
//	fmt.Printf("rank %d of %d, rank 0 listens at %s\n", me.Rank, me.WorldSize, me.Master())
//
// It reads torchrun's names only, so the same trainer also runs under torchrun.
package rankenv

// Var is one environment variable, with the answer to "who set this, and why".
type Var struct {
	Name, Value string
	Source      Source
	// Reason is why it has this value; in [Env.Dropped], why it is not set.
	Reason string
}

// Source is where a variable comes from. It decides who wins when two sources set the same name: [User], then [Torch] and
// [Golaunch], then [Inherited], then [Preset], then [Default].
type Source string

const (
	// User is an explicit --env NAME=value. It beats everything.
	User Source = "user"
	// Torch is a fact about the rank under the name that torchrun gives it. A fact beats an inherited variable: a RANK that is
	// already there is about another process.
	Torch Source = "torch"
	// Golaunch is a fact about the rank that torchrun has no name for.
	Golaunch Source = "golaunch"
	// Inherited is the environment of the golaunch process on the rank's node.
	Inherited Source = "inherited"
	// Preset is a setting for the fabric, made by package nccl.
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
