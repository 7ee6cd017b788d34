package workspace

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/wire/workspace/ignore"
)

const (
	// maxEntries bounds the files and directories of a workspace, and maxRules a file of ignore
	// rules, in bytes.
	maxEntries = 250_000
	maxRules   = 1 << 20
	// maxRefused bounds the files that an error names.
	maxRefused = 10
)

// ignoreFiles are the files with ignore rules that a directory may have; later ones take precedence.
var ignoreFiles = []string{".gitignore", ".rayignore"}

// defaultRules have the lowest precedence. They are Ray's (RAY_RUNTIME_ENV_DEFAULT_EXCLUDES, Ray
// 2.60).
const defaultRules = ".git\n.venv\nvenv\n__pycache__\n"

// InputError says why a directory cannot be a workspace. Each line of its text is about one file.
type InputError struct{ text string }

func (e *InputError) Error() string { return e.text }

func inputErrorf(format string, args ...any) error {
	return &InputError{fmt.Sprintf(format, args...)}
}

// tree is the content of a directory without the ignored files.
type tree struct {
	dir     string
	entries []entry
	// files counts everything except directories. bytes is the size of the plain files.
	files int
	bytes int64
}

// entry is a file, a directory or a symbolic link.
type entry struct {
	// name is the path below the directory, with slashes.
	name string
	mode fs.FileMode
	size int64
	// target is the target of a link.
	target string
}

// scanner scans a directory.
type scanner struct {
	tree
	limit int64
	// levels are the rules for the current directory, starting with the outermost directory.
	levels []level
	// refused has a line for each file that cannot be in a workspace.
	refused []string
	more    int
	// top has the size of each file and directory at the top.
	top map[string]int64
}

// level has the rules of a directory. The rules match the path of a file below that directory:
// above and the path in the workspace, without prefix.
type level struct {
	rules         *ignore.Rules
	above, prefix string
}

// scan finds what a directory contains. It stops as soon as the content exceeds limit bytes.
func scan(dir string, limit int64) (tree, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	var info fs.FileInfo
	if err == nil {
		info, err = os.Stat(real)
	}
	if err == nil && !info.IsDir() {
		err = unix.ENOTDIR
	}
	if err != nil {
		return tree{}, inputErrorf("workspace %s: %v; name the directory on this machine that the ranks need", dir, plain(err))
	}
	s := scanner{tree: tree{dir: real}, limit: limit, top: map[string]int64{}}
	if err := s.enclosing(); err != nil {
		return tree{}, err
	}
	if err := s.scan("."); err != nil {
		return tree{}, err
	}
	if len(s.refused) > 0 {
		if s.more > 0 {
			s.refused = append(s.refused, fmt.Sprintf("workspace %s: %d more files cannot travel", s.dir, s.more))
		}
		return tree{}, inputErrorf("%s", strings.Join(s.refused, "\n"))
	}
	return s.tree, nil
}

// plain returns an error without its path, because the caller names the path.
func plain(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// enclosing adds the rules of the directories above, up to the top of the git repository.
func (s *scanner) enclosing() error {
	rules := &ignore.Rules{}
	rules.Add([]byte(defaultRules))
	s.levels = append(s.levels, level{rules: rules})
	top := s.dir
	for !exists(filepath.Join(top, ".git")) {
		if filepath.Dir(top) == top {
			return nil
		}
		top = filepath.Dir(top)
	}
	for dir := top; dir != s.dir; {
		below, err := filepath.Rel(dir, s.dir)
		if err != nil {
			return err
		}
		if err := s.enter(dir, level{above: below + "/"}); err != nil {
			return err
		}
		first, _, _ := strings.Cut(below, "/")
		dir = filepath.Join(dir, first)
	}
	return nil
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// enter adds the rules of a directory, if it has any.
func (s *scanner) enter(dir string, l level) error {
	for _, name := range ignoreFiles {
		file := filepath.Join(dir, name)
		info, err := os.Stat(file)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() {
			continue
		}
		var text []byte
		switch {
		case err != nil:
		case !info.Mode().IsRegular() || info.Size() > maxRules:
			err = fmt.Errorf("it is no plain file of at most %s", Size(maxRules))
		default:
			text, err = os.ReadFile(file)
		}
		if err != nil {
			return inputErrorf("workspace %s: cannot read the ignore rules in %s: %v", s.dir, file, plain(err))
		}
		if l.rules == nil {
			l.rules = &ignore.Rules{}
		}
		l.rules.Add(text)
	}
	if l.rules != nil {
		s.levels = append(s.levels, l)
	}
	return nil
}

// ignored reports whether a file is ignored by the innermost directory whose rules mention it.
func (s *scanner) ignored(name string, dir bool) bool {
	for _, l := range slices.Backward(s.levels) {
		if ignored, mentioned := l.rules.Match(strings.TrimPrefix(l.above+name, l.prefix), dir); mentioned {
			return ignored
		}
	}
	return false
}

// scan scans the directory with a name in the workspace.
func (s *scanner) scan(dir string) error {
	path := filepath.Join(s.dir, dir)
	list, err := os.ReadDir(path)
	if err != nil {
		s.refuse(dir, "cannot read it: %v", plain(err))
		return nil
	}
	prefix := ""
	if dir != "." {
		prefix = dir + "/"
	}
	levels := s.levels
	if err := s.enter(path, level{prefix: prefix}); err != nil {
		return err
	}
	for _, e := range list {
		name := prefix + e.Name()
		if s.ignored(name, e.IsDir()) {
			continue
		}
		if err := s.add(name); err != nil {
			return err
		}
	}
	s.levels = levels
	return nil
}

// add adds a file, or a directory with everything in it.
func (s *scanner) add(name string) error {
	info, err := os.Lstat(filepath.Join(s.dir, name))
	if errors.Is(err, fs.ErrNotExist) { // the file has just been removed
		return nil
	}
	if err != nil {
		s.refuse(name, "cannot read it: %v", plain(err))
		return nil
	}
	if len(s.entries) == maxEntries {
		return inputErrorf("workspace %s: it has more than %d files and directories; list what the job does not need in %s",
			s.dir, maxEntries, filepath.Join(s.dir, ".rayignore"))
	}
	e := entry{name: name, mode: info.Mode()}
	switch mode := info.Mode(); {
	case mode.IsDir():
		s.entries = append(s.entries, e)
		return s.scan(name)
	case mode.IsRegular():
		if err := unix.Faccessat(unix.AT_FDCWD, filepath.Join(s.dir, name), unix.R_OK, unix.AT_EACCESS); err != nil {
			s.refuse(name, "cannot read it: %v", err)
			return nil
		}
		e.size = info.Size()
		if err := s.count(name, e.size); err != nil {
			return err
		}
	case mode&fs.ModeSymlink != 0:
		if e.target, err = s.link(name); err != nil {
			s.refuse(name, "%v", err)
			return nil
		}
	default:
		s.refuse(name, "it is %s", kind(mode))
		return nil
	}
	s.files++
	s.entries = append(s.entries, e)
	return nil
}

// kind names the kind of a special file.
func kind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	}
	return "a device"
}

// link returns the target of a link, which must be in the workspace.
func (s *scanner) link(name string) (string, error) {
	target, err := os.Readlink(filepath.Join(s.dir, name))
	if err != nil {
		return "", fmt.Errorf("cannot read it: %w", plain(err))
	}
	inside := staysInside(name, target)
	if real, err := filepath.EvalSymlinks(filepath.Join(s.dir, name)); err == nil && inside {
		inside = real == s.dir || strings.HasPrefix(real, strings.TrimSuffix(s.dir, "/")+"/")
	}
	if !inside {
		return "", fmt.Errorf("it is a link to %s, outside the workspace", target)
	}
	return target, nil
}

// staysInside reports whether a link leads to a place in the workspace, if no other link is on the
// way.
func staysInside(name, target string) bool {
	return target != "" && !path.IsAbs(target) && filepath.IsLocal(path.Join(path.Dir(name), target))
}

// refuse notes why a file cannot be in a workspace.
func (s *scanner) refuse(name, format string, args ...any) {
	if len(s.refused) == maxRefused {
		s.more++
		return
	}
	s.refused = append(s.refused, fmt.Sprintf("workspace %s: %q cannot travel: %s; remove it, or list it in .rayignore",
		s.dir, name, fmt.Sprintf(format, args...)))
}

// count counts the bytes of a file.
func (s *scanner) count(name string, size int64) error {
	first, _, below := strings.Cut(name, "/")
	if below {
		first += "/"
	}
	s.top[first] += size
	if s.bytes += size; s.bytes <= s.limit {
		return nil
	}
	largest := slices.SortedFunc(maps.Keys(s.top), func(x, y string) int { return cmp.Or(cmp.Compare(s.top[y], s.top[x]), cmp.Compare(x, y)) })
	var words []string
	for _, name := range largest[:min(3, len(largest))] {
		words = append(words, fmt.Sprintf("%q (%s)", name, Size(s.top[name])))
	}
	return inputErrorf("workspace %s: it has more than %s, the limit; the largest so far: %s; list what the job does not need in %s, or raise the limit",
		s.dir, Size(s.limit), strings.Join(words, ", "), filepath.Join(s.dir, ".rayignore"))
}

// Size formats a number of bytes for people.
func Size(bytes int64) string {
	for _, unit := range []struct {
		name  string
		bytes int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		switch {
		case bytes < unit.bytes:
		case bytes%unit.bytes == 0:
			return fmt.Sprintf("%d %s", bytes/unit.bytes, unit.name)
		default:
			return fmt.Sprintf("%.1f %s", float64(bytes)/float64(unit.bytes), unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}
