package schedenv

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
)

// reader reads variables into a place, and keeps the first error.
type reader struct {
	Machine
	place Place
	err   error
}

// done returns the place, or the first error. A place of several nodes without a head is an error,
// since the nodes could not meet.
func (r *reader) done() (*Place, error) {
	p := &r.place
	if p.Nodes > 0 && p.Node >= p.Nodes {
		r.fail("this would be node %d of only %d (read %s)", p.Node, p.Nodes, strings.Join(p.Sources, ", "))
	}
	if p.Several != nil {
		p.Several = fmt.Errorf("%s: %w", p.By, p.Several)
	} else if p.Each && p.Nodes > 1 && p.Head == "" && p.Ask == nil {
		r.fail("nothing says where node 0 is: give --rendezvous HOST:PORT with its host")
	}
	if r.err != nil {
		return nil, fmt.Errorf("%s: %w", p.By, r.err)
	}
	return p, nil
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// several sets Several and Task: this process, which is number task, is not alone on its node.
func (r *reader) several(task int, format string, args ...any) {
	r.place.Several, r.place.Task = fmt.Errorf(format, args...), task
}

// text returns a variable's value, or "".
func (r *reader) text(name string) string {
	value, _ := r.Env(name)
	if value != "" && !slices.Contains(r.place.Sources, name) {
		r.place.Sources = append(r.place.Sources, name)
	}
	return value
}

func (r *reader) must(name string) string {
	value := r.text(name)
	if value == "" {
		r.fail("%s is not set: pass it on to golaunch, or give --rendezvous HOST:PORT", name)
	}
	return value
}

// maxNodes bounds a count in a variable.
const maxNodes = 1 << 20

// number reads a variable that must be set to a number, least or more.
func (r *reader) number(name string, least int) int {
	return r.count(name, r.must(name), least, maxNodes)
}

// port reads a TCP port; 0 if the variable is not set.
func (r *reader) port(name string) int {
	if !r.has(name) {
		return 0
	}
	return r.count(name, r.text(name), 1, 65535)
}

func (r *reader) count(name, value string, least, most int) int {
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		r.fail("%s is %q, not a number from %d to %d: correct or unset it", name, value, least, most)
		return least
	}
	return n
}

// among sets the place's nodes to hosts. This host must be one of them.
func (r *reader) among(hosts []string, source string) {
	p := &r.place
	p.Names, p.Nodes, p.Node = hosts, len(hosts), position(hosts, r.Hostname)
	switch {
	case p.Nodes == 0:
		r.fail("%s names no host", source)
	case p.Nodes == 1:
		p.Node = 0
	case p.Node < 0:
		r.fail("%s does not name this host, %s: run golaunch on the hosts of the job, or give --rendezvous HOST:PORT",
			source, r.Hostname)
	}
	if r.err == nil {
		p.Name, p.Head = hosts[p.Node], hosts[0]
	}
}

// maxJob bounds a job's name in bytes.
const maxJob = 64

// jobName joins the words that distinguish jobs. A name that is too long keeps its beginning, and
// ends in a hash.
func jobName(parts ...string) string {
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	name := strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '-':
			return c
		}
		return '_'
	}, strings.Join(parts, "-"))
	if len(name) <= maxJob {
		return name
	}
	h := fnv.New64a()
	h.Write([]byte(name))
	return fmt.Sprintf("%s-%016x", name[:maxJob-17], h.Sum64())
}
