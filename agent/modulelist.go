package agent

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

// AutoPreload, as the only module of a [Task], stands for those that rank 0 of the last run of its command had loaded on this node.
const AutoPreload = "auto"

// moduleList is a file of modules, a line each, that a command has loaded when it was run before, and one of those that a fork server must not
// import. It is kept for each program, interpreter, directory and set of variables that lead Python to its modules.
type moduleList struct{ path, except string }

func listOf(p forkserver.Program, s *share) (*moduleList, error) {
	if s.rights() != nil {
		return nil, errors.New("--preload auto is not for ranks of another user (--as-submitter): name the modules")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("--preload auto has no place to remember modules: %w", err)
	}
	key := sha256.New()
	fmt.Fprintf(key, "%q %q %q %q %q\n", p.Interpreter, p.Flags, p.Kind, p.Name, s.work.Task.Dir)
	for _, word := range s.sample().Env {
		name, _, _ := strings.Cut(word, "=")
		if slices.Contains([]string{"PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX"}, name) {
			fmt.Fprintf(key, "%q\n", word)
		}
	}
	path := filepath.Join(cache, "golaunch", "preload", fmt.Sprintf("%x", key.Sum(nil)[:16]))
	return &moduleList{path, path + ".except"}, nil
}

// maxList bounds a list, in bytes.
const maxList = 1 << 20

func readList(path string) []string {
	info, err := os.Lstat(path)
	if err != nil || info.Size() > maxList || !info.Mode().IsRegular() || !safefile.Is(info) {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil // the ranks import for themselves
	}
	return strings.Fields(string(text))
}

// modules are what to import; none before the first run.
func (l *moduleList) modules() []string {
	except := readList(l.except)
	return slices.DeleteFunc(readList(l.path), func(name string) bool { return slices.Contains(except, root(name)) })
}

// exclude leaves a module's package out from now on, and says whether that is news.
func (l *moduleList) exclude(name string) bool {
	except := readList(l.except)
	if slices.Contains(except, root(name)) {
		return false
	}
	return safefile.Write(l.except, []byte(strings.Join(append(except, root(name)), "\n")+"\n"), 0o600) == nil
}

// root is the outermost package of a module.
func root(name string) string {
	name, _, _ = strings.Cut(name, ".")
	return name
}
