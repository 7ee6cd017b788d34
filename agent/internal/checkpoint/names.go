package checkpoint

import (
	"cmp"
	"path"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/internal/host/lazyregexp"
)

// directories matches names of directories that are checkpoints, with their step. They are the
// names of torchtitan, Megatron, Trainer and accelerate, DeepSpeed and verl, NeMo RL, NeMo
// Automodel and Lightning.
var directories = lazyregexp.New(`^(?:step-|iter_|checkpoint[-_]|global_step_?|step_|epoch_\d+_step_)(\d+)$|\.ckpt$`)

// bare matches a checkpoint of Orbax. Other directories may have such a name too.
var bare = lazyregexp.New(`^\d+$`)

// inner matches names of files whose directory is a checkpoint.
var inner = lazyregexp.New(`\.distcp$|^(?:__\d+)?\.metadata(?:\.tmp)?$|_(?:model|optim)_states\.pt$|^random_states_\d+\.pkl$` +
	`|^(?:pytorch_model|model|optimizer|scheduler|adapter_model|diffusion_pytorch_model)(?:-\d+-of-\d+)?\.(?:bin|safetensors)$|^trainer_state\.json$|^rng_state(?:_\d+)?\.pth$`)

var (
	saved    = lazyregexp.New(`\.(?:pt|pth|ckpt|safetensors|bin)$`)
	stepped  = lazyregexp.New(`step[=_-]?(\d+)`)
	numbers  = lazyregexp.New(`\d+`)
	localOne = lazyregexp.New(`^iter_(\d{7})_\d+_local\.pt$`)
	orbaxTmp = lazyregexp.New(`\.orbax-checkpoint-tmp.*$`)
	// copies matches the end of a name that Lightning has made unique.
	copies = lazyregexp.New(`-v\d+\.ckpt$`)
)

// maxClimb is how many directories Locate goes up from a file to find its checkpoint.
const maxClimb = 5

// ofGroup matches files in which torchtitan saves, at each step, how far a replica group has read
// its data.
var ofGroup = lazyregexp.New(`/ft-replicat-[^/]+/`)

// OfGroup reports whether a file has the state of one replica group, without the weights.
func OfGroup(file string) bool { return ofGroup.Get().MatchString(file) }

// Locate returns the checkpoint that a file belongs to, by the file's path alone: the directory
// with the checkpoint, and the name of the checkpoint in that directory. It returns false for other
// files. For a temporary name it returns the final name.
func Locate(file string) (dir, name string, ok bool) {
	file = path.Clean(file)
	if OfGroup(file) {
		return "", "", false
	}
	parts := strings.Split(file, "/")
	for i := max(1, len(parts)-1-maxClimb); i < len(parts)-1; i++ {
		final := FinalName(parts[i])
		if directories.Get().MatchString(final) || bare.Get().MatchString(final) && final != parts[i] || orbaxTmp.Get().MatchString(parts[i]) {
			return strings.Join(parts[:i], "/"), final, true
		}
	}
	base := path.Base(file)
	if inner.Get().MatchString(base) && len(parts) > 2 {
		return path.Dir(path.Dir(file)), FinalName(path.Base(path.Dir(file))), true
	}
	if final := FinalName(base); saved.Get().MatchString(final) {
		return path.Dir(file), final, true
	}
	return "", "", false
}

// FinalName returns the name that a checkpoint gets when it is complete.
func FinalName(name string) string {
	final := orbaxTmp.Get().ReplaceAllString(name, "")
	for _, prefix := range []string{"tmp_", "tmp-", ".tmp_", ".tmp-"} {
		final = strings.TrimPrefix(final, prefix)
	}
	for _, suffix := range []string{".tmp", ".temp", ".part", "-tmp", "_tmp", "-unfinished"} {
		final = strings.TrimSuffix(final, suffix)
	}
	return cmp.Or(strings.Replace(final, "_local.dirty.pt", "_local.pt", 1), name)
}

// isTemporary reports whether a checkpoint with that name is incomplete.
func isTemporary(name string) bool {
	return FinalName(name) != name || strings.HasPrefix(name, "old_step_")
}

// isCheckpoint reports whether a name may be the name of a checkpoint.
func isCheckpoint(name string) bool {
	return saved.Get().MatchString(name) || directories.Get().MatchString(name) || bare.Get().MatchString(name)
}

// Step returns the step in the name of a checkpoint; -1 if there is none.
func Step(name string) int64 {
	name = copies.Get().ReplaceAllString(name, ".ckpt")
	for _, r := range []*lazyregexp.Regexp{localOne, stepped, directories} {
		if found := r.Get().FindStringSubmatch(name); found != nil && found[1] != "" {
			return number(found[1])
		}
	}
	if all := numbers.Get().FindAllString(strings.TrimSuffix(name, path.Ext(name)), -1); isCheckpoint(name) && len(all) > 0 {
		return number(all[len(all)-1])
	}
	return -1
}

// number parses the number of a step. It returns -1 if the text is no number.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}
