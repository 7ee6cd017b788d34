// Package checkpoint tells from the files of a checkpoint whether it is complete.
//
// It does not ask the program. Instead it relies on the format: a program writes some part last, or
// a file states how long the other files must be. [Inspect] reads little of large files and follows
// no instruction in them. It opens files only through an [fs.FS] whose root is the directory with
// the checkpoints.
package checkpoint

import (
	"io/fs"
	"strings"
	"time"
)

// State says what the files of a checkpoint prove.
type State int

const (
	// Unknown means that nothing seems to be missing, but that the files have no mark of the end.
	Unknown State = iota
	// Partial means that something is missing.
	Partial
	// Complete means that the program would find everything that it has saved.
	Complete
)

// Finding is what the files of a checkpoint say.
type Finding struct {
	// Name is the name of the checkpoint's directory or file.
	Name  string
	State State
	// Format says which library wrote the checkpoint: "dcp", "megatron", "file" and so on.
	Format string
	// Step is -1 if the names do not contain the step.
	Step  int64
	Bytes int64
	// Oldest and Newest are the times of the first and the last change of the files, by the clock
	// of the file server.
	Oldest, Newest time.Time
	// Why is the reason for the state.
	Why string
}

// Known is what the caller knows about a checkpoint besides its files.
type Known struct {
	// Ranks is how many ranks wrote the checkpoint; 0 if unknown.
	Ranks int
	// Settled says that no process has any of the files open for writing, and that nothing has
	// changed for a while. This is enough for formats without a mark of the end.
	Settled bool
	// Copied says that the files may be copies, whose times prove nothing.
	Copied bool
}

// Inspect examines the checkpoint with a name, which is a file or a directory.
func Inspect(dir fs.FS, name string, known Known) Finding {
	f := Finding{Name: name, Step: Step(name)}
	t, err := scan(dir, name, known.Copied)
	if err != nil {
		f.State, f.Why = Unknown, err.Error()
		return f
	}
	f.Bytes, f.Oldest, f.Newest = t.bytes, t.oldest, t.newest
	kind := kindOf(t)
	f.Format = kind.name
	f.State, f.Why = judge(t, kind, known)
	if f.State == Unknown && known.Settled && t.err == nil && !maybeTrainers(t) {
		f.State, f.Why = Complete, "no file of it is open for writing, and nothing has changed since"
	}
	return f
}

// judge first looks for signs that prove a checkpoint of any format partial. Then it looks for the
// format's mark of the end.
func judge(t *tree, kind kind, known Known) (State, string) {
	if len(t.files) == 0 {
		return Partial, "it has no file"
	}
	for _, look := range []func(*tree) string{unfinished, cutFiles, missingShards, missingListed} {
		if why := look(t); why != "" {
			return Partial, why
		}
	}
	if t.err != nil {
		return Unknown, t.err.Error()
	}
	state, why := kind.end(t, known)
	if t.err != nil { // kind.end failed to read something
		return Unknown, t.err.Error()
	}
	return state, why
}

// Newest returns the name of the checkpoint with the highest step in a directory, which most
// programs load when they start. The name is empty if there is no checkpoint.
func Newest(dir fs.FS) (newest string, err error) {
	entries, err := readDir(dir, ".")
	step := int64(-1)
	for _, e := range entries {
		if n := Step(e.Name()); n > step && isCheckpoint(e.Name()) && !isTemporary(e.Name()) {
			newest, step = e.Name(), n
		}
	}
	return newest, err
}

// Chosen says how a program chooses the checkpoint that it loads when it starts. pointer is the
// file beside the checkpoints that names the chosen one. If pointer is empty, the program takes the
// newest checkpoint. chosen is false if the file names another checkpoint than f.
func Chosen(dir fs.FS, f Finding) (pointer string, chosen bool) {
	t := &tree{dir: dir, name: f.Name}
	switch f.Format {
	case "megatron", "verl":
		text, _, _ := t.beside(tracker)
		return tracker, number(strings.TrimSpace(text)) == f.Step
	case "deepspeed":
		text, _, _ := t.beside(latest)
		return latest, strings.TrimSpace(text) == f.Name
	}
	return "", true
}
