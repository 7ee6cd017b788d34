package provider

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/golaunch/golaunch/internal/core/capacity"
	"github.com/golaunch/golaunch/launcher/internal/hostfile"
	"github.com/golaunch/golaunch/launcher/internal/shellword"
	"github.com/golaunch/golaunch/launcher/internal/ssh"
)

// SSH starts agents on existing hosts, one on each. A host counts as taken while a process on it
// has a tag, of any cluster, in its arguments. So golaunch needs no file to know which hosts are
// taken, and all coordinators agree on it. An agent outlives the connection that starts it.
type SSH struct {
	Hosts []string
	// Agent has no TokenFile. golaunch sends Token through ssh's standard input, and the agent gets
	// it in its environment.
	Agent Agent
	Token string
	// where has the host on which this coordinator last saw, or started, each tag.
	where *hostTable
	// last is true if no coordinator of the cluster will follow this one. Then no later coordinator
	// could refuse an agent that comes back.
	last bool
}

// hostTable has the host of each tag. Several goroutines may use it.
type hostTable struct {
	mu    sync.Mutex
	hosts map[string]string
}

func (t *hostTable) set(tag, host string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hosts[tag] = host
}

// at returns the tags on a host.
func (t *hostTable) at(host string) (tags []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for tag, on := range t.hosts {
		if on == host {
			tags = append(tags, tag)
		}
	}
	return tags
}

// of returns the host of a tag.
func (t *hostTable) of(tag string) (host string, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	host, known = t.hosts[tag]
	return host, known
}

// forget removes a tag whose agent has ended.
func (t *hostTable) forget(tag string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.hosts, tag)
}

// NewSSH returns a provider for the hosts of words such as n1 and gpu[01-08].
func NewSSH(words []string, a Agent, token string) (SSH, error) {
	hosts, err := hostfile.Parse(strings.Join(words, ","))
	if err != nil {
		return SSH{}, err
	}
	p := SSH{Agent: a, Token: token, where: &hostTable{hosts: map[string]string{}}, last: a.Coordinator == ""}
	for _, h := range hosts {
		if h.Slots > 0 {
			return SSH{}, fmt.Errorf("host %s has slots: a node has what its kind has", h.Name)
		}
		p.Hosts = append(p.Hosts, h.Name)
	}
	return p, nil
}

const (
	// aliveEvery is the interval at which a connected host must answer.
	aliveEvery = 5 * time.Second
	// connectLimit is how long a host may take to answer.
	connectLimit = 10 * time.Second
	// fanOut is the number of hosts that are asked at the same time: each ssh is a process that
	// computes keys.
	fanOut = 64
	// tagArgument is the beginning of the agent's argument that contains its tag.
	tagArgument = capacity.TagLabel + "="
)

// Create implements rendezvous.Provider.
func (p SSH) Create(ctx context.Context, tags []string) error {
	taken, down, err := p.look(ctx)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, all := range taken {
		for _, tag := range all {
			there[tag] = true
		}
	}
	var free []string
	for _, host := range p.Hosts {
		if _, up := taken[host]; up && len(taken[host]) == 0 {
			free = append(free, host)
		}
	}
	missing := slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return there[tag] })
	n := min(len(free), len(missing))
	scripts := map[string]string{}
	for i, tag := range missing[:n] {
		scripts[free[i]] = p.startScript(tag)
		p.where.set(tag, free[i])
	}
	_, failed := p.each(ctx, scripts)
	if n < len(missing) {
		failed[""] = fmt.Errorf("of %d hosts none is free for %s", len(p.Hosts), missing[n])
		if err := first(down); err != nil {
			failed[""] = fmt.Errorf("%w (%w)", failed[""], err)
		}
	}
	return first(failed)
}

// startScript returns a script that starts an agent. If the agent ends at once, the script prints
// the reason.
func (p SSH) startScript(tag string) string {
	words := p.Agent.command(tag)
	for i, w := range words {
		words[i] = shellword.Quote(w)
	}
	return fmt.Sprintf(`
umask 077
[ -x %[1]s ] || { echo %[1]s is not there: install this golaunch at the same path >&2; exit 127; }
export GOLAUNCH_TOKEN=%[2]s
set -C
setsid %[3]s </dev/null >%[4]s 2>&1 &
sleep 1
kill -0 $! 2>/dev/null && exit
tail -n 1 %[4]s >&2
rm -f %[4]s
exit 1
`, words[0], shellword.Quote(p.Token), strings.Join(words, " "), logOf(tag))
}

// logOf returns the path of the log of a tag's agent. The log stays until the node is deleted.
func logOf(tag string) string { return "/tmp/golaunch-" + tag + ".log" }

// List implements rendezvous.Provider. For a host that cannot be reached, it returns the tags that
// were last seen there.
func (p SSH) List(ctx context.Context) (map[string]string, error) {
	taken, down, err := p.look(ctx)
	if err != nil {
		return nil, err
	}
	states := map[string]string{}
	for host := range down {
		for _, tag := range p.where.at(host) {
			states[tag] = "on host " + host + ", which cannot be reached"
		}
	}
	for host, tags := range taken {
		for _, tag := range tags {
			states[tag] = "on host " + host
		}
	}
	return states, nil
}

// listScript prints the tags on a host. It finds them in /proc, where each argument of a process
// ends with NUL.
const listScript = `grep -hosz '^capacity\.tag=.*' /proc/[0-9]*/cmdline | tr '\0' '\n' | sort -u`

// look returns the tags on each host that it can reach, and the reason for each host that it cannot
// reach. It fails if it can reach no host.
func (p SSH) look(ctx context.Context) (taken map[string][]string, down map[string]error, err error) {
	scripts := map[string]string{}
	for _, host := range p.Hosts {
		scripts[host] = listScript
	}
	out, down := p.each(ctx, scripts)
	if len(down) == len(p.Hosts) {
		return nil, nil, first(down)
	}
	taken = map[string][]string{}
	for host, text := range out {
		taken[host] = nil
		for line := range strings.Lines(text) { // a login shell may have printed other lines
			if tag, found := strings.CutPrefix(strings.TrimSpace(line), tagArgument); found {
				taken[host] = append(taken[host], tag)
				p.where.set(tag, host)
			}
		}
	}
	return taken, down, nil
}

// Delete implements rendezvous.Provider. It ends the agents with these tags on all hosts. It fails
// if a tag was last seen on a host that it cannot reach. If the host of a tag is unknown, and it
// cannot reach all hosts, it fails only if no later coordinator could refuse the agent.
func (p SSH) Delete(ctx context.Context, tags []string) error {
	scripts := map[string]string{}
	for _, host := range p.Hosts {
		scripts[host] = stopScript(tags)
	}
	out, down := p.each(ctx, scripts)
	if len(down) == len(p.Hosts) {
		return first(down)
	}
	found := map[string]bool{}
	for _, text := range out {
		for line := range strings.Lines(text) {
			if tag, is := strings.CutPrefix(strings.TrimSpace(line), tagArgument); is {
				found[tag] = true
			}
		}
	}
	for _, tag := range tags {
		host, known := p.where.of(tag)
		switch {
		case found[tag]:
		case known && down[host] != nil:
			return fmt.Errorf("%s may be on it: %w", tag, down[host])
		case !known && len(down) > 0 && p.last:
			return fmt.Errorf("%s may be on a host that cannot be reached: %w", tag, first(down))
		default:
			p.where.forget(tag)
		}
	}
	return nil
}

// stopScript returns a script that makes agents leave, kills the agents that have not left within
// ten seconds, and prints the tags that it has found. Tags consist of letters, digits and hyphens,
// so the shell needs no quotes.
func stopScript(tags []string) string {
	return fmt.Sprintf(`
pids() { grep -lsxz "%s$1" /proc/[0-9]*/cmdline | cut -d / -f 3; }
for tag in %s; do
	signal=TERM
	for i in 1 2 3 4 5 6 7 8 9 10; do
		all=$(pids $tag)
		[ -n "$all" ] || break
		[ $signal = none ] || echo %s$tag
		[ $signal = none ] || kill -$signal $all
		signal=none
		sleep 1
	done
	all=$(pids $tag)
	[ -z "$all" ] || kill -KILL $all
	rm -f %s
done
`, strings.ReplaceAll(tagArgument, ".", `\.`), strings.Join(tags, " "), tagArgument, logOf("$tag"))
}

// each runs a script on each host. It returns the output of the scripts, and the errors of scripts
// that failed.
func (p SSH) each(ctx context.Context, scripts map[string]string) (out map[string]string, failed map[string]error) {
	type answer struct {
		text []byte
		err  error
	}
	hosts := slices.Sorted(maps.Keys(scripts))
	answers := make([]answer, len(hosts))
	var all errgroup.Group
	all.SetLimit(fanOut)
	for i, host := range hosts {
		all.Go(func() error {
			line := sshLine(host)
			answers[i].text, answers[i].err = run(ctx, []byte(scripts[host]), line[0], line[1:]...)
			return nil
		})
	}
	_ = all.Wait() // the errors are in errs
	out, failed = map[string]string{}, map[string]error{}
	for i, a := range answers {
		if out[hosts[i]] = string(a.text); a.err != nil {
			delete(out, hosts[i])
			failed[hosts[i]] = fmt.Errorf("host %s: %w", hosts[i], a.err)
		}
	}
	return out, failed
}

// first returns the error of the first host in alphabetical order; nil if there is none.
func first(failed map[string]error) error {
	if len(failed) == 0 {
		return nil
	}
	return failed[slices.Min(slices.Collect(maps.Keys(failed)))]
}

// Line implements Provider. It returns the command line for the first host.
func (p SSH) Line(string) []string { return sshLine(p.Hosts[0]) }

// sshLine returns a command line that runs a script on a host. It reads the script from its
// standard input.
func sshLine(host string) []string {
	args := append([]string{"ssh"}, ssh.Options(aliveEvery)...)
	return append(args, fmt.Sprintf("-oConnectTimeout=%d", connectLimit/time.Second), "--", host, "sh")
}
