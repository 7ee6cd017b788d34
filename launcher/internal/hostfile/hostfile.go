// Package hostfile reads lists of machines: the lists of --hosts, and files of mpirun or DeepSpeed.
package hostfile

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/internal/host/hostlist"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/internal/usage"
)

// maxFile bounds a file of hosts, in bytes.
const maxFile = 16 << 20

// Host is a machine and its slots; with 0 slots it takes as many ranks as the job wants.
type Host struct {
	Name  string
	Slots int
}

// Parse reads a list such as n1,n2:4 or gpu[01-08]:8.
func Parse(list string) ([]Host, error) {
	h := hostList{index: map[string]int{}}
	for list != "" {
		var entry string
		entry, list = cutEntry(list)
		names, slots, err := parseEntry(entry)
		if err == nil {
			err = h.add(names, slots, false)
		}
		if err != nil {
			return nil, usage.Errorf("--hosts: %w", err)
		}
	}
	return h.hosts, nil
}

// cutEntry cuts a list at its first comma outside of brackets. A comma at the end leaves an invalid
// entry.
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

// Read reads a file. If a host is on several lines without slots, each line counts as one slot
// (orte_hosts(7)).
func Read(path string) ([]Host, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, usage.Errorf("--hostfile: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, usage.Errorf("--hostfile: %w", err)
	case len(text) > maxFile:
		return nil, usage.Errorf("--hostfile %s: it has more than %d bytes", path, maxFile)
	}
	hosts, err := parseLines(string(text))
	if err != nil {
		return nil, usage.Errorf("--hostfile %s: %w", path, err)
	}
	return hosts, nil
}

func parseLines(text string) ([]Host, error) {
	h := hostList{index: map[string]int{}}
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		number++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		names, slots, err := parseLine(fields)
		if err == nil {
			err = h.add(names, slots, true)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if len(h.hosts) == 0 {
		return nil, errors.New("it names no host")
	}
	return h.hosts, nil
}

// parseLine reads HOST, HOST:SLOTS or HOST slots=SLOTS. It checks max_slots but ignores the value,
// up to which mpirun may exceed the slots, because golaunch never exceeds the slots.
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
	end := strings.LastIndexByte(host, ']') + 1 // colons inside the brackets belong to an IPv6 address
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
		if err := Check(names[i]); err != nil {
			return nil, 0, err
		}
	}
	return names, slots, nil
}

// maxSlots is more than the GPUs or CPUs of any machine.
const maxSlots = 1 << 16

func parseSlots(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxSlots {
		return 0, fmt.Errorf("%.60q is no number of slots from 1 to %d", text, maxSlots)
	}
	return n, nil
}

// hostList has the hosts that were read so far.
type hostList struct {
	hosts []Host
	// index has each host's position in hosts, by the host's name without the user.
	index map[string]int
	// lines counts each host's lines without slots.
	lines []int
}

// add adds hosts with the given number of slots each, 0 if the entry names no slots. If lines is
// true, a host that is already in the list, without slots, gets one more slot.
func (h *hostList) add(names []string, slots int, lines bool) error {
	if len(h.hosts)+len(names) > hostlist.Max {
		return fmt.Errorf("more than %d hosts", hostlist.Max)
	}
	for _, name := range names {
		host := withoutUser(name)
		i, known := h.index[host]
		switch {
		case !known:
			h.index[host] = len(h.hosts)
			h.hosts, h.lines = append(h.hosts, Host{name, slots}), append(h.lines, 1)
		case !lines:
			return fmt.Errorf("%s is listed twice; %s:2 gives it 2 slots", host, host)
		case slots > 0 || h.lines[i] == 1 && h.hosts[i].Slots > 0 || h.hosts[i].Name != name:
			return fmt.Errorf("%s is listed already; list it once, with slots=N", host)
		default:
			h.lines[i]++
			h.hosts[i].Slots = h.lines[i]
		}
	}
	return nil
}

func withoutUser(name string) string { return name[strings.LastIndexByte(name, '@')+1:] }

// NodeName returns the name of the host's node. It is empty if a node cannot have the host's name,
// for instance because that is an IPv6 address.
func NodeName(host string) string {
	name := withoutUser(host)
	if !wire.ValidName(name) {
		return ""
	}
	return name
}

// Check refuses a name that ssh, or a shell that ssh starts for a ProxyCommand, might take for
// something else than a host.
func Check(name string) error {
	host := withoutUser(name)
	user := strings.TrimSuffix(name, host)
	bad := func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(`._-+@\`, c))
	}
	if user == "@" || strings.HasPrefix(user, "-") || strings.ContainsFunc(user, bad) {
		return fmt.Errorf("%.60q: a user before @ is of letters, digits and ._-+@\\, and does not begin with '-'", name)
	}
	addr, err := netip.ParseAddr(host)
	if zone := addr.Zone(); !wire.ValidName(host) && (err != nil || zone != "" && !wire.ValidName(zone)) {
		return fmt.Errorf("%.60q is no host: a name of letters, digits, '.', '_' and '-', or an address", name)
	}
	return nil
}
