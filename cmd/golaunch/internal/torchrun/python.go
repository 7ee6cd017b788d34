package torchrun

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// runpy implements --run-path: Python runs the script with runpy.run_path and the script's
// arguments. It records an exception as torchrun records an exception of a function.
const runpy = `import json, os, runpy, sys, time, traceback
del sys.argv[0]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except Exception as e:
    if name := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        extra = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
        with open(name, "w") as f:
            json.dump({"message": {"message": f"{type(e).__name__}: {e}", "extraInfo": extra}}, f)
    raise
`

// command is the command of each rank.
func (t *torchFlags) command(args []string, self string) ([]string, error) {
	python := []string{interpreter(self, t.program()), "-u"}
	switch {
	case len(args) == 0:
		return nil, errors.New("the following arguments are required: training_script, training_script_args")
	case t.runPath:
		python = append(python, "-c", runpy)
	case t.noPython && t.module:
		return nil, errors.New("don't use both the --no-python flag and the --module flag at the same time")
	case t.noPython:
		python, args = args[:1:1], args[1:] // the program is no Python script
	case t.module:
		python = append(python, "-m")
	}
	return append(python, args...), nil
}

// interpreter returns the Python that runs scripts, the first of these:
//   - PYTHON_EXEC
//   - the Python beside the link torchrun or ft_launcher that was called, or beside a link to which
//     it leads, if that Python is in a virtual environment
//   - the Python beside such a link, if no environment is activated
//   - the first Python in the PATH
func interpreter(self, name string) string {
	if python := os.Getenv("PYTHON_EXEC"); python != "" {
		return python
	}
	names := torchLinks(self, name)
	for _, link := range names {
		if isEnvironment(filepath.Dir(filepath.Dir(link))) {
			if python := beside(link); python != "" {
				return python
			}
		}
	}
	for _, link := range names {
		if python := beside(link); python != "" && !activated() {
			return python
		}
	}
	if _, err := exec.LookPath("python"); err == nil {
		return "python"
	}
	return "python3"
}

// maxLinks is the number of links that the kernel follows (path_resolution(7)).
const maxLinks = 40

// torchLinks follows the link that was called, and lists the links with that name on the way.
func torchLinks(self, name string) (names []string) {
	link, err := exec.LookPath(self)
	for range maxLinks {
		if err != nil || filepath.Base(link) != name {
			break
		}
		names = append(names, link)
		var target string
		if target, err = os.Readlink(link); err == nil && !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(link), target)
		}
		link = target
	}
	return names
}

// beside returns the Python in the directory of a link; empty if there is none.
func beside(link string) string {
	for _, name := range []string{"python3", "python"} {
		if python, err := filepath.Abs(filepath.Join(filepath.Dir(link), name)); err == nil {
			if _, err := exec.LookPath(python); err == nil {
				return python
			}
		}
	}
	return ""
}

// isEnvironment reports whether a directory is a virtual environment (PEP 405) or an environment of
// conda.
func isEnvironment(dir string) bool {
	return slices.ContainsFunc([]string{"pyvenv.cfg", "conda-meta"}, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// activated reports whether an environment is activated.
func activated() bool { return os.Getenv("VIRTUAL_ENV")+os.Getenv("CONDA_PREFIX") != "" }
