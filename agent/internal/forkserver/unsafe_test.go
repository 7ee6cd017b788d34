package forkserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// driver is a libcuda that records its initialization.
const driver = `
#include <stdio.h>
#include <stdlib.h>
static int initialized;
int cuInit(unsigned flags) {
  FILE *f = fopen(getenv("FAKE_CUDA_LOG"), "a");
  fprintf(f, "cuInit\n");
  fclose(f);
  initialized = 1;
  return 0;
}
int cuDriverGetVersion(int *version) { *version = 13020; return 0; }
int cuCtxGetCurrent(void **context) { *context = 0; return initialized ? 0 : 3; }
`

// TestCUDA checks that a module that only loads the driver does no harm, and that a module that
// initializes the driver prevents forks. Ranks may initialize it themselves.
func TestCUDA(t *testing.T) {
	w := newWorld(t)
	log := withDriver(t, w)
	for name, text := range map[string]string{
		"loads.py":       "import ctypes\ndriver = ctypes.CDLL('libcuda.so.1')\n",
		"initializes.py": "import loads\nloads.driver.cuInit(0)\n",
		"rank.py":        "import loads\nprint(loads.driver.cuInit(0))\n",
	} {
		if err := os.WriteFile(filepath.Join(w.dir, "lib", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.env = append(w.env, "PYTHONPATH="+filepath.Join(w.dir, "lib"))
	argv := []string{pythons(t)[0], "lib/rank.py"}
	s, _ := w.server(argv, "loads")
	if _, err := os.Stat(log); err == nil {
		t.Error("loading the driver has initialized it")
	}
	for range 2 {
		if e := w.run(argv, "", s); e.Out != "0\n" || !e.Exit.OK() {
			t.Errorf("a rank that initializes CUDA: %+v", e)
		}
	}
	unsafe := (*UnsafeError)(nil)
	if _, _, err := w.serve(argv, "initializes"); !errors.As(err, &unsafe) || unsafe.Why != "after import initializes CUDA is initialized in it" {
		t.Errorf("got %v", err)
	}
}

// withDriver gives a world a libcuda, and returns the file that records its initialization.
func withDriver(t *testing.T, w *world) (log string) {
	t.Helper()
	lib := filepath.Join(w.dir, "lib")
	if err := os.Mkdir(lib, 0o700); err != nil {
		t.Fatal(err)
	}
	cc := exec.Command("cc", "-shared", "-fPIC", "-x", "c", "-o", filepath.Join(lib, "libcuda.so.1"), "-")
	cc.Stdin = strings.NewReader(driver)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("this test needs a C compiler (apt install gcc libc6-dev): %v\n%s", err, out)
	}
	log = filepath.Join(w.dir, "cuda.log")
	w.env = append(w.env, "LD_LIBRARY_PATH="+lib, "FAKE_CUDA_LOG="+log)
	return log
}

// TestTorch checks, for the installed torch, that importing it leaves a process that can be forked,
// without CUDA. OpenBLAS has a thread for each CPU.
func TestTorch(t *testing.T) {
	python := os.Getenv("GOLAUNCH_TEST_PYTHON")
	if python == "" {
		python = "/usr/bin/python3"
	}
	const find = "import importlib.util as i, numpy; print(*i.find_spec('torch').submodule_search_locations)" // importing torch takes seconds
	where, err := exec.Command(python, "-c", find).Output()
	if err != nil {
		t.Fatalf("this test needs a Python with torch and numpy (apt install python3-torch), see GOLAUNCH_TEST_PYTHON: %v", err)
	}
	w := newWorld(t)
	log := withDriver(t, w)
	if err := os.WriteFile(filepath.Join(w.dir, "lib", "generators.py"), []byte(`import numpy, random, torch
RNG, STATE, SEEDS = numpy.random.default_rng(), numpy.random.RandomState(), numpy.random.SeedSequence()
BITS, CHILD, PLAIN = numpy.random.Generator(numpy.random.PCG64()), numpy.random.default_rng(SEEDS.spawn(1)[0]), random.Random()
OF_TORCH, HELD = torch.Generator(), {"by": (torch.Generator(),)}
OF_TORCH.seed(), HELD["by"][0].seed()
CONSTANT = numpy.random.default_rng(5), numpy.random.RandomState(5), random.Random(5), torch.Generator().manual_seed(5)
`), 0o600); err != nil {
		t.Fatal(err)
	}
	w.env = append(w.env, "PYTHONPATH="+filepath.Join(w.dir, "lib"))
	if err := os.WriteFile(filepath.Join(w.dir, "draw.py"), []byte(`import numpy, random, secrets, torch, uuid
from generators import *
a, b, c, d = CONSTANT
print("constant", a.random(), b.rand(), c.random(), torch.rand(1, generator=d).item())
print(random.random(), numpy.random.rand(), numpy.random.randint(1 << 60), secrets.token_hex(), uuid.uuid4(), uuid.uuid1(), sep="\n")
print(RNG.random(), STATE.rand(), SEEDS.generate_state(4), BITS.random(), CHILD.random(), PLAIN.random(), sep="\n")
print(torch.rand(1, generator=OF_TORCH).item(), torch.rand(1, generator=HELD["by"][0]).item(), sep="\n")
print(SEEDS.spawn(1)[0].generate_state(4), RNG.spawn(1)[0].random() if hasattr(RNG, "spawn") else secrets.token_hex(), sep="\n")
if torch.initial_seed() == 67280421310721: # that of all processes, before torch 2.15
    torch.seed()
print(torch.rand(1).item())
assert (numpy.ones((500, 500)) @ numpy.ones((500, 500))).sum() == 500 ** 3 and torch.ones(500, 500).mm(torch.ones(500, 500)).sum() == 500 ** 3
`), 0o600); err != nil {
		t.Fatal(err)
	}
	argv := []string{python, "draw.py"}
	modules := []string{"torch", "torch.distributed", "torch.utils.data", "numpy", "generators"}
	for _, name := range []string{"_dynamo", "_inductor"} { // older versions lack the module
		if _, err := os.Stat(filepath.Join(strings.TrimSpace(string(where)), name, "__init__.py")); err == nil {
			modules = append(modules, "torch."+name)
		}
	}
	s, _ := w.server(argv, modules...)
	if _, err := os.Stat(log); err == nil {
		t.Error("import torch has initialized CUDA")
	}
	constant, _, _ := strings.Cut(w.run(argv, "", nil, "RANK=8").Out, "\n")
	seen := map[string]bool{}
	for i := range 8 {
		e := w.run(argv, "", s, fmt.Sprintf("RANK=%d", i))
		if !e.Exit.OK() {
			t.Errorf("%+v", e)
		}
		same, draws, _ := strings.Cut(e.Out, "\n")
		if same != constant || !strings.HasPrefix(same, "constant ") {
			t.Errorf("of seeds that are constant a rank has drawn %q, and if it is forked %q: %s", constant, same, e.Errors)
		}
		for draw := range strings.Lines(draws) {
			if seen[draw] {
				t.Errorf("%s was drawn by two ranks", draw)
			}
			seen[draw] = true
		}
	}
	if len(seen) != 8*17 {
		t.Errorf("%d draws", len(seen))
	}
}

// TestTransformers checks that the packages that people use with torch can be forked too.
func TestTransformers(t *testing.T) {
	python := suite.Optional(t, "GOLAUNCH_TEST_VERL", "Python with transformers")
	lib, err := filepath.Abs("../../../python") // this folder has a module ray for verl
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.env = append(w.env, "PYTHONPATH="+lib)
	argv := []string{python, "-c", "import sys; print('transformers.trainer' in sys.modules)"}
	s, _ := w.server(argv, "transformers", "transformers.trainer", "transformers.models.llama.modeling_llama", "tensordict", "ray", "verl.single_controller.base")
	if e := w.run(argv, "", s); e.Out != "True\n" {
		t.Errorf("%+v", e)
	}
}
