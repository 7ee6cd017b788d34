package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/internal/host/hostlist"
)

// maxHostfile bounds a file of hosts, in bytes.
const maxHostfile = 16 << 20

// ParseHosts reads a list such as n1,n2:4, where a number behind the colon is the slots, or a file that mpirun or DeepSpeed could
// read: n1 slots=4. It returns none if both are empty, and 2^20 at most. A name may be a Slurm host list, such as gpu[01-08], and an
// IPv6 address stands in brackets.
//
// In a file the lines of a host that name no slots are one slot each when there are several (orte_hosts(7)); that a host is there
// twice is an error otherwise, as it is in a list. Errors are ErrUsage, in one line, and name the flag or the file with the line.
func ParseHosts(list, file string) ([]Host, error) {
	switch {
	case list != "" && file != "":
		return nil, usage("give --hosts or --hostfile, not both")
	case list != "":
		return parseHosts(list)
	case file != "":
		return readHosts(file)
	}
	return nil, nil
}

func parseHosts(list string) ([]Host, error) {
	r := roll{at: map[string]int{}}
	for list != "" {
		var entry string
		entry, list = cutEntry(list)
		names, slots, err := parseEntry(entry)
		if err == nil {
			err = r.add(names, slots, false)
		}
		if err != nil {
			return nil, usage("--hosts: %v", err)
		}
	}
	return r.hosts, nil
}

// cutEntry cuts a list at its first comma that is not in brackets. A comma at the end is followed by an entry that fails.
func cutEntry(list string) (entry, rest string) {
	inside := false
	for i, c := range []byte(list) {
		switch {
		case c == '[':
			inside = true
		case c == ']':
			inside = false
		case c == ',' && !inside && i == len(list)-1:
			return list, ""
		case c == ',' && !inside:
			return list[:i], list[i+1:]
		}
	}
	return list, ""
}

func readHosts(path string) ([]Host, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, usage("--hostfile: %v", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxHostfile+1))
	switch {
	case err != nil:
		return nil, usage("--hostfile: %v", err)
	case len(text) > maxHostfile:
		return nil, usage("--hostfile %s: it has more than %d bytes", path, maxHostfile)
	}
	hosts, err := parseHostfile(string(text))
	if err != nil {
		return nil, usage("--hostfile %s: %v", path, err)
	}
	return hosts, nil
}

func parseHostfile(text string) ([]Host, error) {
	r := roll{at: map[string]int{}}
	line := 0
	for words := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		line++
		words, _, _ = strings.Cut(words, "#")
		fields := strings.Fields(words)
		if len(fields) == 0 {
			continue
		}
		names, slots, err := parseLine(fields)
		if err == nil {
			err = r.add(names, slots, true)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
	if len(r.hosts) == 0 {
		return nil, errors.New("it names no host")
	}
	return r.hosts, nil
}

// parseLine reads HOST, HOST:SLOTS or HOST slots=SLOTS; max_slots is how far mpirun may go beyond the slots, which golaunch never does.
func parseLine(fields []string) (names []string, slots int, err error) {
	if names, slots, err = parseEntry(fields[0]); err != nil {
		return nil, 0, err
	}
	most := 0
	for _, field := range fields[1:] {
		key, value, _ := strings.Cut(field, "=")
		n, err := parseSlots(value)
		switch {
		case key != "slots" && key != "max_slots" && key != "max-slots":
			return nil, 0, fmt.Errorf("%.60q: want slots=N or max_slots=N behind the host", field)
		case err != nil:
			return nil, 0, fmt.Errorf("%s: %w", key, err)
		case key != "slots":
			most = n
		case slots > 0:
			return nil, 0, fmt.Errorf("%.60q: the slots are given already", field)
		default:
			slots = n
		}
	}
	if most > 0 && most < slots {
		return nil, 0, fmt.Errorf("max_slots=%d is less than slots=%d", most, slots)
	}
	return names, slots, nil
}

// parseEntry reads [USER@]HOST[:SLOTS].
func parseEntry(text string) (names []string, slots int, err error) {
	at := strings.LastIndexByte(text, '@') + 1
	user, host := text[:at], text[at:]
	end := strings.LastIndexByte(host, ']') + 1 // an IPv6 address has colons before that
	if i := strings.IndexByte(host[end:], ':'); i >= 0 {
		end += i
		if slots, err = parseSlots(host[end+1:]); err != nil {
			return nil, 0, fmt.Errorf("%.60q: %w; HOST:SLOTS, or [ADDRESS]:SLOTS for IPv6, is possible", text, err)
		}
		host = host[:end]
	}
	if inner, ok := strings.CutPrefix(host, "["); ok && strings.ContainsRune(host, ':') {
		names = []string{strings.TrimSuffix(inner, "]")}
	} else if names, err = hostlist.Expand(host); err != nil {
		return nil, 0, err
	}
	for i, name := range names {
		names[i] = user + name
		if err := checkHost(names[i]); err != nil {
			return nil, 0, err
		}
	}
	return names, slots, nil
}

// maxSlots is more than a machine has of anything.
const maxSlots = 1 << 16

func parseSlots(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxSlots {
		return 0, fmt.Errorf("%.60q is no number of slots from 1 to %d", text, maxSlots)
	}
	return n, nil
}

// roll is the hosts so far.
type roll struct {
	hosts []Host
	// at is the index of a host, by its name without the user.
	at map[string]int
	// lines counts, for each host, those that name no slots.
	lines []int
}

// add adds hosts that have so many slots each, 0 if nobody said. With lines, one that is there already gets one more.
func (r *roll) add(names []string, slots int, lines bool) error {
	if len(r.hosts)+len(names) > hostlist.Max {
		return fmt.Errorf("more than %d hosts", hostlist.Max)
	}
	for _, name := range names {
		host := name[strings.LastIndexByte(name, '@')+1:]
		i, known := r.at[host]
		switch {
		case !known:
			r.at[host] = len(r.hosts)
			r.hosts, r.lines = append(r.hosts, Host{name, slots}), append(r.lines, 1)
		case !lines:
			return fmt.Errorf("%s is there twice; %s:2 gives it 2 slots", host, host)
		case slots > 0 || r.lines[i] == 1 && r.hosts[i].Slots > 0 || r.hosts[i].Name != name:
			return fmt.Errorf("%s is there already; give it once, with slots=N", host)
		default:
			r.lines[i]++
			r.hosts[i].Slots = r.lines[i]
		}
	}
	return nil
}
