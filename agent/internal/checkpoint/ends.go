package checkpoint

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/golaunch/golaunch/internal/host/lazyregexp"
)

// kind is a format: how to recognize it, and which file is written last.
type kind struct {
	name string
	is   func(*tree) bool
	// end says whether the part that is written last is there. judge calls it only if all files and
	// shards are whole, and no mark says that the checkpoint is incomplete.
	end func(*tree, Known) (State, string)
}

// Other is the format of checkpoints that no kind matches.
const Other = "other"

// kindOf returns the first kind that matches a checkpoint.
func kindOf(t *tree) kind {
	for _, k := range kinds() {
		if k.is(t) {
			return k
		}
	}
	return kind{Other, nil, unmarked}
}

// ofTrainer matches files that transformers' Trainer writes before trainer_state.json. Other
// programs use the names of its directories too. ofAccelerate matches files of Accelerate.
const (
	ofTrainer = `^(training_args\.bin|optimizer\.(pt|bin)|scheduler\.pt|scaler\.pt|rng_state(_\d+)?\.pth)$` +
		`|^(pytorch_model_fsdp|optimizer)_\d+/|^global_step\d+/`
	ofAccelerate = `^random_states_\d+\.pkl$`
)

// maybeTrainers reports whether a checkpoint with a name of Trainer's has a model, but none of the
// files that Trainer writes after the model. If Trainer was killed there, the checkpoint is not
// complete, but other programs write no more than this. So rest proves nothing.
func maybeTrainers(t *tree) bool {
	_, later := t.any(func(f file) bool {
		return f.path == "trainer_state.json" || trainers.Get().MatchString(f.path) || accelerates.Get().MatchString(f.path)
	})
	_, model := t.any(func(f file) bool { return topModel.Get().MatchString(f.path) })
	return numbered.Get().MatchString(t.name) && model && !later
}

var (
	numbered    = lazyregexp.New(`^checkpoint-\d+$`)
	trainers    = lazyregexp.New(ofTrainer)
	accelerates = lazyregexp.New(ofAccelerate)
	topModel    = lazyregexp.New(`^(model|pytorch_model|adapter_model)[-.]`)
)

// kinds are in the order in which they are tried: more specific kinds come first.
var kinds = sync.OnceValue(func() []kind {
	named := func(pattern string) func(*tree) bool {
		r := lazyregexp.New(pattern)
		return func(t *tree) bool { return r.Get().MatchString(t.name) && !t.has(".") }
	}
	with := func(pattern string) func(*tree) bool {
		r := lazyregexp.New(pattern)
		return func(t *tree) bool {
			_, ok := t.any(func(f file) bool { return r.Get().MatchString(f.path) })
			return ok
		}
	}
	byTrainer, byAccelerate, byIndex := with(ofTrainer), with(ofAccelerate), with(`^model`+regexp.QuoteMeta(index)+`$`)
	parts, indexed := with(`-\d+-of-\d+\.(safetensors|bin)$`), with(`\.index\.json$`)
	return []kind{
		{"file", func(t *tree) bool { return t.has(".") }, oneFile},
		{"megatron", named(`^iter_\d{7}$`), megatron},
		{"deepspeed", with(`^[^/]*_(model|optim)_states\.pt$`), deepspeed},
		{"trainer", func(t *tree) bool {
			return t.has("trainer_state.json") || numbered.Get().MatchString(t.name) && !byAccelerate(t) && (byTrainer(t) || parts(t) && !indexed(t))
		}, trainer},
		{"verl", func(t *tree) bool {
			return named(`^global_step_?\d+$`)(t) && with(`^(actor|critic|transfer_queue)/|^data\.pt$`)(t)
		}, tracked},
		{"automodel", named(`^epoch_\d+_step_\d+$`), marked("its .incomplete is gone")},
		{"orbax", with(`(^|/)(commit_success\.txt|_CHECKPOINT_METADATA)$`), orbax},
		{"torch_checkpointing", with(`^metadata\.pkl$`), marked("its directory has got its final name")},
		{"lightning", named(`\.ckpt$`), lightning},
		{"nemo-rl", func(t *tree) bool { return named(`^step_\d+$`)(t) && t.has("training_info.json") }, marked("its directory has got its final name")},
		{"accelerate", byAccelerate, accelerate},
		{"safetensors", func(t *tree) bool { return byIndex(t) && !maybeTrainers(t) }, marked("all files are whole that its index lists")},
		{"dcp", with(`^(__\d+)?\.metadata$|^[^/]*\.distcp$`), dcp},
	}
})

func marked(why string) func(*tree, Known) (State, string) {
	return func(*tree, Known) (State, string) { return Complete, why }
}

// unmarked is for a format without a mark of the end.
func unmarked(*tree, Known) (State, string) {
	return Unknown, "its format has no mark of the end that golaunch knows"
}

func oneFile(t *tree, known Known) (State, string) {
	f := t.files[0]
	if ext := path.Ext(t.name); ext == ".safetensors" || saved.Get().MatchString(t.name) && string(t.readAt(f, 0, 2)) == "PK" {
		return Complete, "the file is whole"
	}
	return unmarked(t, known)
}

func dcp(t *tree, known Known) (State, string) {
	if t.has(metadata) {
		return Complete, "all shards are as long as .metadata says"
	}
	return everyRank(t, known, rankMetadata, func(rank int) string { return fmt.Sprintf("__%d.metadata", rank) })
}

// everyRank is for formats in which each rank writes a file of its own last.
func everyRank(t *tree, known Known, pattern *lazyregexp.Regexp, name func(rank int) string) (State, string) {
	highest := -1
	for _, f := range t.files {
		if found := pattern.Get().FindStringSubmatch(f.path); found != nil {
			highest = max(highest, int(number(found[1])))
		}
	}
	for rank := range max(known.Ranks, highest+1) {
		if !t.has(name(rank)) {
			return Partial, name(rank) + " is missing"
		}
	}
	if known.Ranks == 0 {
		return Unknown, "all files are whole, but it is not known how many ranks have written it"
	}
	return Complete, fmt.Sprintf("all files of %d ranks are whole", known.Ranks)
}

var randomStates = lazyregexp.New(`^random_states_(\d+)\.pkl$`)

// accelerate is for Hugging Face's Accelerate. It cannot prove a checkpoint complete, because
// Accelerate may write objects of the user last. Some programs, such as those of diffusers, save on
// rank 0 alone.
func accelerate(t *tree, known Known) (State, string) {
	name := func(rank int) string { return fmt.Sprintf("random_states_%d.pkl", rank) }
	for _, f := range t.files {
		if randomStates.Get().MatchString(f.path) && !t.wholePickle(f) {
			return Partial, f.path + " is cut short"
		}
	}
	alone := !slices.ContainsFunc(t.files, func(f file) bool { return randomStates.Get().MatchString(f.path) && f.path != name(0) })
	if state, why := everyRank(t, known, randomStates, name); state != Complete && !alone {
		return state, why
	}
	return Unknown, "its ranks have saved, but objects of the program may follow"
}

// wholePickle reports whether a pickle, or a file of torch.save, is not cut short.
func (t *tree) wholePickle(f file) bool {
	if string(t.readAt(f, 0, 2)) == "PK" {
		return t.wholeZip(f)
	}
	return string(t.readAt(f, f.size-1, 1)) == "."
}

// lightning is for directories of Lightning: with shards, or with a checkpoint of DeepSpeed.
func lightning(t *tree, known Known) (State, string) {
	_, deep := t.any(func(f file) bool { return inLightning.Get().MatchString(f.path) })
	switch {
	case deep && !t.has(latest):
		return Partial, "latest is missing, which rank 0 writes last"
	case deep:
		return everyZeroRank(t, known)
	case !t.has(metadata):
		return unmarked(t, known)
	case !t.has("meta.pt"):
		return Partial, "meta.pt is missing, which is written last"
	}
	return Complete, "all shards and meta.pt are whole"
}

var inLightning = lazyregexp.New(`^checkpoint/[^/]*_(model|optim)_states\.pt$`)

var (
	rngState = lazyregexp.New(`^rng_state_(\d+)\.pth$`)
	// beforeState matches files that Trainer writes before trainer_state.json, and those of the
	// random states, for which it does not wait. Callbacks of the program may add other files later.
	beforeState = lazyregexp.New(ofTrainer + `|^(pytorch_model|model|adapter_model)(-\d+-of-\d+)?\.(bin|safetensors)$`)
)

// trainer is for transformers' Trainer. Rank 0 writes trainer_state.json last, but does not wait
// for the files of the other ranks.
func trainer(t *tree, known Known) (State, string) {
	last, ok := t.find("trainer_state.json")
	if !ok {
		return Partial, "trainer_state.json is missing, which rank 0 writes last"
	}
	for _, f := range t.files {
		if beforeState.Get().MatchString(f.path) && !rngState.Get().MatchString(f.path) && t.newer(f.at, last.at) {
			return Partial, f.path + " is newer than trainer_state.json"
		}
	}
	var state struct {
		Step int64 `json:"global_step"`
	}
	if err := json.Unmarshal(strictJSON(t.readAt(last, 0, last.size)), &state); err != nil {
		return Partial, "trainer_state.json cannot be read"
	}
	if step := Step(t.name); step >= 0 && state.Step != step {
		return Partial, fmt.Sprintf("trainer_state.json is of step %d", state.Step)
	}
	one := t.has("rng_state.pth")
	many, _ := t.any(func(f file) bool { return rngState.Get().MatchString(f.path) })
	_, optimizer := t.any(func(f file) bool { return strings.Contains(f.path, "optim") })
	if one || many.path == "" && !optimizer { // one rank, or save_only_model
		return Complete, "trainer_state.json is there, and all files are whole"
	}
	return everyRank(t, known, rngState, func(rank int) string { return fmt.Sprintf("rng_state_%d.pth", rank) })
}

// latest is the file beside checkpoints of DeepSpeed that names the newest checkpoint.
const latest = "latest"

var zeroRank = lazyregexp.New(`^(.*)zero_pp_rank_(\d+)_(mp_rank_\d+)_optim_states\.pt$`)

// deepspeed is for DeepSpeed.
func deepspeed(t *tree, known Known) (State, string) {
	state, why := everyZeroRank(t, known)
	if state == Partial {
		return state, why
	}
	if text, at, ok := t.beside(latest); !ok || strings.TrimSpace(text) != t.name && t.newer(t.oldest, at) {
		return Partial, "the file latest beside it does not name it yet"
	}
	return state, why
}

// everyZeroRank counts DeepSpeed's files of optimizers, because rank 0 names the checkpoint in
// "latest" without waiting for the other ranks.
func everyZeroRank(t *tree, known Known) (State, string) {
	groups, files := map[string]map[int64]bool{}, 0
	for _, f := range t.files {
		found := zeroRank.Get().FindStringSubmatch(f.path)
		if found == nil {
			continue
		}
		group := found[1] + found[3]
		if groups[group] == nil {
			groups[group] = map[int64]bool{}
		}
		groups[group][number(found[2])] = true
		files++
	}
	size := 0
	for _, ranks := range groups {
		size = max(size, len(ranks))
	}
	for group, ranks := range groups {
		for rank := range int64(size) {
			if !ranks[rank] {
				return Partial, fmt.Sprintf("the optimizer's file of %s of data parallel rank %d is missing", group, rank)
			}
		}
	}
	if known.Ranks == 0 || files != known.Ranks {
		return Unknown, "all files are whole, but it is not known how many there must be"
	}
	return Complete, fmt.Sprintf("all files of %d ranks are whole", known.Ranks)
}

const tracker = "latest_checkpointed_iteration.txt"

// tracked is for formats with a tracker file beside the checkpoints. A checkpoint is complete once
// the tracker names it, or names a later checkpoint that exists.
func tracked(t *tree, _ Known) (State, string) {
	text, at, ok := t.beside(tracker)
	text = strings.TrimSpace(text)
	step := Step(t.name)
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case !ok:
		return Partial, tracker + " is not there yet, which is written last"
	case err != nil:
		return Partial, tracker + " is being written"
	case t.newer(t.newest, at):
		return Partial, "it is newer than " + tracker
	case n != step && !t.follows(n):
		return Partial, fmt.Sprintf("%s says %d", tracker, n)
	}
	return Complete, tracker + " has named it"
}

// follows reports whether the checkpoint of another step exists under a name of the same form.
func (t *tree) follows(step int64) bool {
	digits := numbers.Get().FindString(t.name)
	name := strings.Replace(t.name, digits, fmt.Sprintf("%0*d", len(digits), step), 1)
	if !strings.HasPrefix(digits, "0") && len(digits) < 7 {
		name = strings.Replace(t.name, digits, strconv.FormatInt(step, 10), 1)
	}
	_, err := fs.Stat(t.dir, name)
	return err == nil
}

// megatron is for Megatron and Megatron-Bridge. Bridge writes run_config.yaml, which has no mark of
// its end, after the tracker.
func megatron(t *tree, known Known) (State, string) {
	if !t.has("train_state.pt") {
		return tracked(t, known)
	}
	last, ok := t.find("run_config.yaml")
	if !ok {
		return Partial, "run_config.yaml is missing, which is written last"
	}
	text, at, named := t.beside(tracker)
	switch {
	case !named || strings.TrimSpace(text) == "" || t.newer(at, last.at) && number(strings.TrimSpace(text)) == Step(t.name):
		return Partial, "run_config.yaml is older than " + tracker
	case number(strings.TrimSpace(text)) != Step(t.name) && !t.follows(number(strings.TrimSpace(text))):
		return Partial, tracker + " does not name it"
	}
	return Unknown, "run_config.yaml may still be written"
}

// orbax is for Orbax. A local directory gets its final name at the end. On object stores, Orbax
// writes commit_success.txt at the end.
func orbax(t *tree, known Known) (State, string) {
	if f, ok := t.find("commit_success.txt"); ok {
		if !strings.Contains(string(t.readAt(f, 0, 1024)), "successful") {
			return Partial, "commit_success.txt is cut short"
		}
		return Complete, "commit_success.txt is there"
	}
	f, ok := t.find("_CHECKPOINT_METADATA")
	if !ok {
		return unmarked(t, known)
	}
	var times struct {
		Commit *int64 `json:"commit_timestamp_nsecs"`
	}
	if err := json.Unmarshal(strictJSON(t.readAt(f, 0, f.size)), &times); err != nil {
		return Partial, "_CHECKPOINT_METADATA is cut short"
	}
	if times.Commit == nil {
		return Partial, "_CHECKPOINT_METADATA has no time of the commit"
	}
	return Complete, "it was committed, and has got its final name"
}
