package dl

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

// Loaded lists the paths of libnccl that a process has mapped, sorted. If there are several, the
// installation mixes versions. Loaded does not find an NCCL that is linked into another library. A
// path is the one that the process sees; if the process is in another container, the file is at
// that path below /proc/<pid>/root. Loaded also lists a file that was deleted after it was mapped.
//
// The error is fs.ErrNotExist if there is no such process, and fs.ErrPermission if it belongs to
// another user.
func Loaded(pid int) ([]string, error) {
	all, err := mappings(pid)
	return libraries(all), err
}

func libraries(all []mapping) []string {
	var found []string
	for _, m := range all {
		if base := path.Base(m.path); base == "libnccl.so" || strings.HasPrefix(base, "libnccl.so.") {
			found = append(found, m.path)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// mapping is a range of a process's addresses, from the first up to but excluding the last, and the
// file mapped there.
type mapping struct {
	from, to uint64
	path     string
}

// mappings lists the mapped files of a process. The kernel bounds their number (vm.max_map_count).
func mappings(pid int) ([]mapping, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, fmt.Errorf("see what process %d has mapped: %w", pid, err)
	}
	defer f.Close()
	all, err := parse(f)
	if err != nil {
		return nil, fmt.Errorf("see what process %d has mapped: %w", pid, err)
	}
	return all, nil
}

// parse reads /proc/<pid>/maps (proc_pid_maps(5)): a range of addresses, four other columns, and
// the path, which may contain blanks. Only the name of a file begins with a slash.
func parse(maps io.Reader) ([]mapping, error) {
	var all []mapping
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		columns := strings.SplitN(lines.Text(), " ", 6)
		file := strings.TrimLeft(columns[len(columns)-1], " ")
		if len(columns) < 6 || !strings.HasPrefix(file, "/") {
			continue
		}
		m := mapping{path: strings.TrimSuffix(file, " (deleted)")}
		if _, err := fmt.Sscanf(columns[0], "%x-%x", &m.from, &m.to); err != nil {
			return nil, fmt.Errorf("no range of addresses in %q", lines.Text())
		}
		all = append(all, m)
	}
	return all, lines.Err()
}
