package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golaunch/golaunch/agent/internal/pickle"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// saving is what a program writes, in this order.
type saving struct {
	name   string
	ranks  int
	files  []written
	format string
	// want is the state once everything is written.
	want State
}

// written is a file, or the removal of one if text is nil.
type written struct {
	path string
	text []byte
}

var began = time.Unix(1_700_000_000, 0)

// at returns the directory after some bytes of a saving, as a crash at that point leaves it.
func (s saving) at(bytes int) fstest.MapFS {
	dir := fstest.MapFS{}
	for i, w := range s.files {
		if bytes < 0 {
			break
		}
		if w.text == nil {
			if bytes > 0 {
				delete(dir, w.path)
			}
			bytes--
			continue
		}
		dir[w.path] = &fstest.MapFile{Data: w.text[:min(bytes, len(w.text))], ModTime: began.Add(time.Duration(i) * time.Second)}
		if bytes -= len(w.text); bytes <= 0 {
			break
		}
	}
	return dir
}

func (s saving) bytes() (n int) {
	for _, w := range s.files {
		n += max(1, len(w.text))
	}
	return n
}

func sample(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(path.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// savings returns how the programs that this package knows save.
func savings(t *testing.T) []saving {
	zip, tensors := sample(t, "model_7.pt"), sample(t, "model.safetensors")
	shards := func(dir string) []written {
		return []written{
			{dir + "/__0_0.distcp", sample(t, "step-40/__0_0.distcp")},
			{dir + "/__1_0.distcp", sample(t, "step-40/__1_0.distcp")},
			{dir + "/.metadata", sample(t, "step-40/.metadata")},
		}
	}
	text := func(name, text string) written { return written{name, []byte(text)} }
	list := text("step-40/model.safetensors.index.json", `{"weight_map":{"w":"model-00001-of-00001.safetensors"}}`)
	return []saving{
		{"model_7.pt", 1, []written{{"model_7.pt", zip}}, "file", Complete},
		{"epoch=1-step=200.ckpt", 1, []written{{"epoch=1-step=200.ckpt", zip}}, "file", Complete},
		{"model.safetensors", 1, []written{{"model.safetensors", tensors}}, "file", Complete},
		{"legacy.pt", 1, []written{{"legacy.pt", sample(t, "legacy.pt")}}, "file", Unknown},
		{"iter_0000040_1_local.pt", 2, []written{{"iter_0000040_1_local.pt", zip}}, "file", Complete},
		{"step-40", 2, shards("step-40"), "dcp", Complete},
		{"step-40", 2, []written{
			shards("step-40")[0], shards("step-40")[1],
			{"step-40/__0.metadata", sample(t, "step-40/.metadata")},
			{"step-40/__1.metadata", sample(t, "step-40/.metadata")},
		}, "dcp", Complete},
		{"step-40", 2, []written{
			{"step-40/sharded/shard-1-model-1-of-1.safetensors", tensors}, {"step-40/model-00001-of-00001.safetensors", tensors}, list,
		}, "safetensors", Complete},
		{"iter_0000040", 2, append(shards("iter_0000040"),
			text("iter_0000040/metadata.json", `{"sharded_backend":"torch_dist"}`), text(tracker, "40")), "megatron", Complete},
		{"iter_0000040", 2, []written{
			{"iter_0000040/mp_rank_00/model_optim_rng.pt", zip}, {"iter_0000040/mp_rank_01/model_optim_rng.pt", zip}, text(tracker, "40"),
		}, "megatron", Complete},
		{"iter_0000040", 2, append(shards("iter_0000040"), written{"iter_0000040/train_state.pt", zip}, text(tracker, "40"),
			text("iter_0000040/run_config.yaml", "a: b\n")), "megatron", Unknown},
		{"global_step_40", 2, []written{
			{"global_step_40/actor/model_world_size_2_rank_0.pt", zip}, {"global_step_40/data.pt", zip}, text(tracker, "40"),
		}, "verl", Complete},
		{"checkpoint-40", 2, []written{
			{"checkpoint-40/model.safetensors", tensors},
			text("checkpoint-40/config.json", "{}"),
			{"checkpoint-40/optimizer.pt", zip},
			{"checkpoint-40/rng_state_1.pth", zip},
			{"checkpoint-40/rng_state_0.pth", zip},
			text("checkpoint-40/trainer_state.json", `{"best_metric": -Infinity, "global_step": 40, "log_history": [{"grad_norm": NaN, "note": "NaN\" {"}]}`),
		}, "trainer", Complete},
		{"checkpoint-40", 2, append(slices.Concat(shards("checkpoint-40/pytorch_model_fsdp_0"), shards("checkpoint-40/optimizer_0")),
			written{"checkpoint-40/rng_state_0.pth", zip}, text("checkpoint-40/trainer_state.json", `{"global_step": 40}`),
			written{"checkpoint-40/rng_state_1.pth", zip}), "trainer", Complete},
		{"checkpoint-40", 1, []written{
			text("checkpoint-40/checkpoint-is-incomplete.txt", "x"),
			{"checkpoint-40/model.safetensors", tensors},
			text("checkpoint-40/trainer_state.json", `{"global_step": 40}`),
			{"checkpoint-40/checkpoint-is-incomplete.txt", nil},
		}, "trainer", Complete},
		{"checkpoint_3", 2, []written{
			{"checkpoint_3/model.safetensors", tensors}, {"checkpoint_3/random_states_0.pkl", zip}, {"checkpoint_3/random_states_1.pkl", zip},
		}, "accelerate", Unknown},
		{"checkpoint-40", 2, []written{ // of programs with accelerate, such as those of diffusers
			{"checkpoint-40/model.safetensors", tensors},
			{"checkpoint-40/optimizer.bin", zip},
			{"checkpoint-40/random_states_0.pkl", zip},
			{"checkpoint-40/random_states_1.pkl", zip},
		}, "accelerate", Unknown},
		{"checkpoint-40", 1, []written{ // of a program that saves a model alone
			{"checkpoint-40/unet/model-00001-of-00001.safetensors", tensors},
			text("checkpoint-40/unet/model.safetensors.index.json", `{"weight_map":{"w":"model-00001-of-00001.safetensors"}}`),
		}, "other", Unknown},
		{"a.ckpt", 2, append(shards("a.ckpt"), written{"a.ckpt/meta.pt", zip}), "lightning", Complete},
		{"a.ckpt", 2, []written{ // of Lightning's strategy for DeepSpeed
			{"a.ckpt/checkpoint/mp_rank_00_model_states.pt", zip},
			{"a.ckpt/checkpoint/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", zip},
			text("a.ckpt/latest", "checkpoint"),
			{"a.ckpt/checkpoint/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", zip},
		}, "lightning", Complete},
		{"40", 2, []written{
			text("40/default/d/data", "xx"), text("40/default/_METADATA", `{"tree_metadata": {}}`),
			text("40/_CHECKPOINT_METADATA", `{"metrics": {"loss": NaN}, "commit_timestamp_nsecs": 7}`),
		}, "orbax", Complete},
		{"40", 2, []written{text("40/d/data", "xx"), text("40/commit_success.txt", "Checkpoint commit was successful")}, "orbax", Complete},
		{"global_step40", 2, []written{
			{"global_step40/mp_rank_00_model_states.pt", zip},
			{"global_step40/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", zip},
			text("latest", "global_step40"),
			{"global_step40/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", zip},
		}, "deepspeed", Complete},
		{"epoch_0_step_40", 2, append(append([]written{text("epoch_0_step_40/.incomplete", "x")}, shards("epoch_0_step_40/model")...),
			written{"epoch_0_step_40/.incomplete", nil}), "automodel", Complete},
		{"save.nemo", 1, []written{text("save.nemo-unfinished", "x"), {"save.nemo/weights.pt", zip}, {"save.nemo-unfinished", nil}}, "other", Unknown},
		{"mine", 1, []written{text("mine/a", "x"), text("mine/b", "x")}, "other", Unknown},
	}
}

func TestInspect(t *testing.T) {
	for _, s := range savings(t) {
		whole := Inspect(s.at(s.bytes()), s.name, Known{Ranks: s.ranks})
		if whole.State != s.want || whole.Format != s.format || whole.Why == "" {
			t.Errorf("%v, want %v %s", whole, s.want, s.format)
		}
		settled := Inspect(s.at(s.bytes()), s.name, Known{Ranks: s.ranks, Settled: true})
		if settled.State != Complete {
			t.Errorf("settled: %v", settled)
		}
	}
}

// TestMaybeTrainers checks that a checkpoint that Trainer may not have finished is neither complete,
// even at rest, nor partial.
func TestMaybeTrainers(t *testing.T) {
	model, part := []byte{2, 0, 0, 0, 0, 0, 0, 0, '{', '}'}, "model-00001-of-00001.safetensors"
	for name, dir := range map[string]fstest.MapFS{
		"an adapter": {"checkpoint-4/adapter_config.json": {Data: []byte("{}")}, "checkpoint-4/adapter_model.safetensors": {Data: model}},
		"a model":    {"checkpoint-4/model.safetensors": {Data: model}},
		"parts": {
			"checkpoint-4/" + part:                      {Data: model},
			"checkpoint-4/model.safetensors.index.json": {Data: []byte(`{"weight_map":{"w":"` + part + `"}}`)},
		},
	} {
		if got := Inspect(dir, "checkpoint-4", Known{Ranks: 1, Settled: true}); got.State != Unknown {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// tries returns how many random tries each format gets.
func tries() int {
	if suite.All() {
		return 10_000
	}
	return 300
}

// TestCrashes checks that no interrupted save is complete, whether the interruption was between two
// files or within one.
func TestCrashes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, s := range savings(t) {
		for range tries() {
			cut := random.IntN(s.bytes())
			if got := Inspect(s.at(cut), s.name, Known{Ranks: s.ranks}); got.State == Complete {
				t.Fatalf("after %d of %d bytes: %v", cut, s.bytes(), got)
			}
		}
	}
}

// TestTruncations checks that a checkpoint with a file that was cut is not complete.
func TestTruncations(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, s := range savings(t) {
		for range tries() {
			dir := s.at(s.bytes())
			names := make([]string, 0, len(dir))
			for name := range dir {
				if base := path.Base(name); slices.Contains([]string{".pt", ".pth", ".ckpt", ".safetensors", ".distcp", ".json", ".metadata", ".pkl"}, path.Ext(base)) && base != "legacy.pt" || strings.HasSuffix(base, "_METADATA") {
					names = append(names, name)
				}
			}
			if len(names) == 0 {
				break
			}
			slices.Sort(names)
			name := names[random.IntN(len(names))]
			f := *dir[name]
			f.Data = f.Data[:random.IntN(len(f.Data))]
			dir[name] = &f
			got := Inspect(dir, s.name, Known{Ranks: s.ranks, Settled: true})
			if got.State == Complete {
				t.Fatalf("%s with %d bytes: %v", name, len(f.Data), got)
			}
		}
	}
}

// TestOverwritten checks checkpoints that are written over older checkpoints of the same name. The
// first file is then new, and the mark of the end is old.
func TestOverwritten(t *testing.T) {
	for _, s := range savings(t) {
		switch s.format {
		case "dcp", "megatron", "verl", "trainer":
			dir := s.at(s.bytes())
			first := dir[s.files[0].path]
			if first == nil { // a mark that is gone when the checkpoint is complete
				continue
			}
			dir[s.files[0].path] = &fstest.MapFile{Data: first.Data, ModTime: began.Add(time.Hour)}
			if got := Inspect(dir, s.name, Known{Ranks: s.ranks}); got.State == Complete {
				t.Errorf("with a newer %s: %v", s.files[0].path, got)
			}
		}
	}
}

// TestCallbacks checks that a file that the program adds to a checkpoint of Trainer does not make
// it partial.
func TestCallbacks(t *testing.T) {
	dir := fstest.MapFS{
		"checkpoint-4/model.safetensors":        {Data: sample(t, "model.safetensors"), ModTime: began},
		"checkpoint-4/trainer_state.json":       {Data: []byte(`{"global_step": 4}`), ModTime: began.Add(time.Second)},
		"checkpoint-4/mine/adapter.safetensors": {Data: sample(t, "model.safetensors"), ModTime: began.Add(time.Minute)},
	}
	if got := Inspect(dir, "checkpoint-4", Known{Ranks: 2}); got.State != Complete {
		t.Error(got)
	}
}

func TestPartial(t *testing.T) {
	zip := sample(t, "model_7.pt")
	one := func(files ...string) fstest.MapFS {
		dir := fstest.MapFS{}
		for _, name := range files {
			dir[name] = &fstest.MapFile{Data: zip, ModTime: began}
		}
		return dir
	}
	for _, c := range []struct {
		dir   fstest.MapFS
		name  string
		ranks int
		want  State
		why   string
	}{
		{one("tmp_a/x.pt"), "tmp_a", 1, Partial, "its name"},
		{one("5.orbax-checkpoint-tmp-12/x.pt"), "5.orbax-checkpoint-tmp-12", 1, Partial, "its name"},
		{one("5/a.orbax-checkpoint-tmp/x"), "5", 1, Partial, "final name"},
		{one("old_step_4/x.pt"), "old_step_4", 1, Partial, "its name"},
		{one("a.ckpt/meta.pt"), "a.ckpt", 1, Unknown, "no mark"},
		{one("step-1/__0_0.distcp"), "step-1", 1, Partial, ".metadata is missing"},
		{one("step-1/__0_0.distcp", "step-1/.metadata.tmp"), "step-1", 1, Partial, "until it is complete"},
		{one("iter_0000001/a.pt"), "iter_0000001", 1, Partial, tracker},
		{one("checkpoint-1/optimizer.pt"), "checkpoint-1", 1, Partial, "trainer_state.json is missing"},
		{one("checkpoint-1/model-00001-of-00002.bin"), "checkpoint-1", 1, Partial, "trainer_state.json is missing"},
		{one("checkpoint-1/a.pt"), "checkpoint-1", 1, Unknown, "no mark"},
		{one("checkpoint-1/random_states_0.pkl"), "checkpoint-1", 4, Unknown, "may follow"},
		{one("checkpoint-1/random_states_0.pkl", "checkpoint-1/random_states_2.pkl"), "checkpoint-1", 4, Partial, "random_states_1.pkl is missing"},
		{one("a.ckpt/checkpoint/mp_rank_00_model_states.pt"), "a.ckpt", 1, Partial, "latest is missing"},
		{fstest.MapFS{"empty": {Mode: fs.ModeDir}}, "empty", 1, Partial, "no file"},
		{one(), "gone", 1, Unknown, "not exist"},
		{embedded(zip), "a.pt", 1, Partial, "cut short"},
	} {
		got := Inspect(c.dir, c.name, Known{Ranks: c.ranks})
		if got.State != c.want || !strings.Contains(got.Why, c.why) {
			t.Errorf("%v, want %v: %s", got, c.want, c.why)
		}
	}
}

// embedded returns a file that was cut at the end of an archive inside it.
func embedded(zip []byte) fstest.MapFS {
	return fstest.MapFS{"a.pt": {Data: slices.Concat(zip[:100], zip), ModTime: began}}
}

func TestTracker(t *testing.T) {
	zip := sample(t, "model_7.pt")
	for _, c := range []struct {
		text string
		late int
		want State
	}{
		{"40", 9, Complete},
		{"40\n", 9, Complete},
		{"50", 9, Complete}, // the tracker names a later checkpoint
		{"60", 9, Partial},
		{"4", 9, Partial},
		{"", 9, Partial},
		{"40", -9, Partial},
	} {
		dir := fstest.MapFS{
			"iter_0000040/mp_rank_00/model_optim_rng.pt": {Data: zip, ModTime: began},
			"iter_0000050/mp_rank_00/model_optim_rng.pt": {Data: zip, ModTime: began},
			tracker: {Data: []byte(c.text), ModTime: began.Add(time.Duration(c.late) * time.Second)},
		}
		if got := Inspect(dir, "iter_0000040", Known{}); got.State != c.want {
			t.Errorf("%q: %v, want %v", c.text, got, c.want)
		}
	}
}

func TestNewest(t *testing.T) {
	zip := sample(t, "model_7.pt")
	dir := fstest.MapFS{}
	if name, err := Newest(dir); name != "" || err != nil {
		t.Error(name, err)
	}
	for _, name := range []string{"checkpoint-9/a.pt", "checkpoint-10/a.pt", "partial/checkpoint-11/a.pt", "tmp_checkpoint-12/a.pt", "logs-99/x", "runs/checkpoint-13/x"} {
		dir[name] = &fstest.MapFile{Data: zip, ModTime: began}
	}
	if name, err := Newest(dir); name != "checkpoint-10" || err != nil {
		t.Error(name, err)
	}
}

func TestLocate(t *testing.T) {
	for file, want := range map[string]string{
		"/a/step-40/__0_0.distcp":                                     "/a step-40 40",
		"/a/step-40/.metadata.tmp":                                    "/a step-40 40",
		"/a/ft-replicat-1/step-4/__0_0.distcp":                        "",
		"/a/tmp_step_7/policy/weights/x.safetensors":                  "/a step_7 7",
		"/a/iter_0000012/mp_rank_00/model_optim_rng.pt":               "/a iter_0000012 12",
		"/a/iter_0000012/__3_1.distcp":                                "/a iter_0000012 12",
		"/l/s/3/iter_0000012_3_local.dirty.pt":                        "/l/s/3 iter_0000012_3_local.pt 12",
		"/a/checkpoint-500/global_step500/mp_rank_00_model_states.pt": "/a checkpoint-500 500",
		"/a/1000.orbax-checkpoint-tmp/state.orbax-checkpoint-tmp/d/f": "/a 1000 1000",
		"/a/state_100.orbax-checkpoint-tmp/d/f":                       "/a state_100 -1",
		"/a/.tmp/__0_0.distcp":                                        "/a .tmp -1",
		"/a/epoch_1_step_20/model/shard.safetensors":                  "/a epoch_1_step_20 20",
		"/a/global_step_30/actor/model_world_size_2_rank_0.pt":        "/a global_step_30 30",
		"/a/mytag/mp_rank_00_model_states.pt":                         "/a mytag -1",
		"/a/out/model.safetensors":                                    "/a out -1",
		"/a/epoch=3-step=700.ckpt":                                    "/a epoch=3-step=700.ckpt 700",
		"/a/epoch=3-step=700.ckpt/__0_0.distcp":                       "/a epoch=3-step=700.ckpt 700",
		"/a/ckpt_12.pt.tmp":                                           "/a ckpt_12.pt 12",
		"/a/latest.pt":                                                "/a latest.pt -1",
		"/a/last-v1.ckpt":                                             "/a last-v1.ckpt -1",
		"/a/epoch=3-step=700-v2.ckpt":                                 "/a epoch=3-step=700-v2.ckpt 700",
		"/a/epoch=3-v2.ckpt":                                          "/a epoch=3-v2.ckpt 3",
		"/a/run/events.out.tfevents.1":                                "",
		"/a/train.log":                                                "",
		"/a/2024/data.txt":                                            "",
	} {
		got := ""
		if dir, name, ok := Locate(file); ok {
			got = fmt.Sprint(dir, " ", name, " ", Step(name))
		}
		if got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}

// TestBounds checks that no checkpoint makes an inspection exceed its bounds.
func TestBounds(t *testing.T) {
	header := binary.LittleEndian.AppendUint64(nil, 1<<62)
	many := fstest.MapFS{}
	for i := range maxOpens + 1 {
		many[fmt.Sprintf("a/%d.pt", i)] = &fstest.MapFile{Data: []byte("PK\x03\x04"), ModTime: began}
	}
	long := "{" + strings.Repeat(" ", maxList) + "}"
	lists := fstest.MapFS{
		"a/m.safetensors":                {Data: append(binary.LittleEndian.AppendUint64(nil, uint64(len(long))), long...)},
		"a/model.safetensors.index.json": {Data: []byte(long)},
	}
	values := fstest.MapFS{
		"a/__0_0.distcp": {}, "a/.metadata": {Data: []byte("\x80\x04" + strings.Repeat("N\x94", pickle.MaxValues) + ".")},
	}
	deep := "a" + strings.Repeat("/d", maxDepth+1) + "/f.pt"
	for name, dir := range map[string]fstest.MapFS{
		"many": many, "deep": {deep: {Data: sample(t, "model_7.pt")}}, "header": {"a/m.safetensors": {Data: header}}, "values": values, "lists": lists,
	} {
		if got := Inspect(dir, "a", Known{Settled: true}); got.State == Complete || (name == "values" || name == "lists") && got.State != Unknown {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func FuzzPickle(f *testing.F) {
	text, err := os.ReadFile("testdata/step-40/.metadata")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		if found, err := pickled(text); (err == nil) != (len(found) > 0) {
			t.Error(found, err)
		}
	})
}

func TestPickle(t *testing.T) {
	found, err := pickled(sample(t, "step-40/.metadata"))
	want := extents{}
	for _, name := range []string{"__0_0.distcp", "__1_0.distcp"} {
		want[name] = int64(len(sample(t, "step-40/"+name)))
	}
	if a, _ := json.Marshal(found); err != nil || !slices.Equal(a, must(json.Marshal(want))) {
		t.Errorf("%v, %v; want %v", found, err, want)
	}
	for _, bad := range []string{"", ".", "\x80\x04.", "\x80\x04(.", "\x80\x04t.", "\x80\x04h\x01.", "\x80\x04\xff.", "\x80\x04N..", "\x80\x04]}]u."} {
		if found, err := pickled([]byte(bad)); err == nil {
			t.Errorf("%q: %v", bad, found)
		}
	}
}

func must(text []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return text
}
