package imports

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/agent/internal/forkserver"
	"github.com/golaunch/golaunch/internal/host/safefile"
)

// moduleList is a file that lists the modules of a command's last run, one a line. A second file
// lists packages that a fork server must not import. There is one pair for each program,
// interpreter, directory and set of variables by which Python finds modules.
type moduleList struct{ path, except string }

// pathVariables lead Python to its modules.
var pathVariables = []string{"PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX"}

func newModuleList(p forkserver.Program, o Options) (*moduleList, error) {
	if o.Rights != nil {
		return nil, errors.New("--preload auto is not for ranks of another user (--as-submitter): name the modules")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("--preload auto has no directory for its list of modules: %w", err)
	}
	key := sha256.New()
	fmt.Fprintf(key, "%q %q %q %q %q\n", p.Interpreter, p.Flags, p.Kind, p.Name, o.Dir)
	for _, word := range o.SampleEnv() {
		name, _, _ := strings.Cut(word, "=")
		if slices.Contains(pathVariables, name) {
			fmt.Fprintf(key, "%q\n", word)
		}
	}
	path := filepath.Join(cache, "golaunch", "preload", fmt.Sprintf("%x", key.Sum(nil)[:16]))
	return &moduleList{path, path + ".except"}, nil
}

// maxList bounds a list, in bytes.
const maxList = 1 << 20

// readList returns no modules if it cannot trust or read the file. The ranks then import their
// modules themselves.
func readList(path string) []string {
	info, err := os.Lstat(path)
	if err != nil || info.Size() > maxList || !info.Mode().IsRegular() || !safefile.Is(info) {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// modules returns what to import; nothing before the first run.
func (l *moduleList) modules() []string {
	except := readList(l.except)
	return slices.DeleteFunc(readList(l.path), func(name string) bool { return slices.Contains(except, packageOf(name)) })
}

// exclude omits a module's package from now on. It returns false if the package was already
// omitted, or if the file cannot be written.
func (l *moduleList) exclude(name string) bool {
	except := readList(l.except)
	if slices.Contains(except, packageOf(name)) {
		return false
	}
	return safefile.Write(l.except, []byte(strings.Join(append(except, packageOf(name)), "\n")+"\n"), 0o600) == nil
}

// packageOf returns the outermost package of a module.
func packageOf(name string) string {
	name, _, _ = strings.Cut(name, ".")
	return name
}
