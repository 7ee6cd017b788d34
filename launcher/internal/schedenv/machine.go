package schedenv

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
)

// Machine is the machine from which a place is read.
type Machine struct {
	// Env is the environment, as [os.LookupEnv] reads it.
	Env func(name string) (value string, ok bool)
	// Hostname is this machine's own name. If it is empty, this machine is in no list of hosts.
	Hostname string
	// FS holds the files that the environment names, with paths from the root.
	FS fs.FS
}

// Here is the machine that runs this process.
func Here() Machine {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	return Machine{Env: os.LookupEnv, Hostname: host, FS: os.DirFS("/")}
}

// has reports whether a variable is set and not empty.
func (m Machine) has(name string) bool {
	value, ok := m.Env(name)
	return ok && value != ""
}

// maxFile bounds a file, in bytes: a line for each slot of the largest machines fits.
const maxFile = 16 << 20

func (m Machine) file(name string) ([]byte, error) {
	f, err := m.FS.Open(strings.TrimPrefix(path.Clean(name), "/"))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s has more than %d MiB", name, maxFile>>20)
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return data, err
}

// hosts returns the first words of a file's lines, without duplicates.
func (m Machine) hosts(name string) ([]string, error) {
	data, err := m.file(name)
	if err != nil {
		return nil, err
	}
	var names []string
	lines := bufio.NewScanner(strings.NewReader(string(data)))
	for lines.Scan() {
		if words := strings.Fields(lines.Text()); len(words) > 0 && words[0][0] != '#' {
			names = append(names, words[0])
		}
	}
	return once(names), lines.Err()
}

// once removes duplicates: it keeps the first of equal names.
func once(names []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(names, func(name string) bool {
		again := seen[name]
		seen[name] = true
		return again
	})
}

// position returns the index of a host in a list; -1 if the list does not have it. It ignores the
// domains of the names.
func position(hosts []string, host string) int {
	return slices.IndexFunc(hosts, func(other string) bool { return host != "" && short(other) == short(host) })
}

// short returns a host's name without its domain. It returns an address as it is.
func short(host string) string {
	if _, err := netip.ParseAddr(host); err == nil {
		return host
	}
	name, _, _ := strings.Cut(host, ".")
	return name
}
