// Package up starts and ends the cluster that a file describes (docs/up.md). The file is written
// for golaunch or for Ray's cluster launcher. The package runs a few shell scripts on the head,
// which is this machine or is reached over ssh.
package up

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/launcher/internal/capacityfile"
	"github.com/golaunch/golaunch/launcher/internal/provider"
	"github.com/golaunch/golaunch/launcher/internal/shellword"
	"github.com/golaunch/golaunch/launcher/internal/usage"
)

// Cluster is the cluster that a file describes. Open returns one.
type Cluster struct {
	// Say gets messages about progress, and Warn gets problems that do not end the call of a
	// method.
	Say  func(string)
	Warn func(error)
	// Confirm asks a person before a method changes or ends something.
	Confirm func(question string) (bool, error)

	path, golaunch string // the paths of the file and of this program
	file           capacityfile.File
	text           []byte
}

// errNotConfirmed means that the person refused, and nothing was done.
var errNotConfirmed = errors.New("not confirmed: nothing has changed")

// Open reads the file of a cluster.
func Open(path string) (*Cluster, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find the program that the head runs: %w", err)
	}
	c := &Cluster{
		path: path, golaunch: self, Say: func(string) {}, Warn: func(error) {},
		Confirm: func(string) (bool, error) { return false, nil },
	}
	if c.text, err = capacityfile.Text(path); err != nil {
		return nil, err
	}
	if c.file, err = capacityfile.Parse(c.text); err != nil {
		return nil, usage.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// note warns of the parts of the file that have no effect.
func (c *Cluster) note() {
	for _, note := range c.file.Notes {
		c.Warn(fmt.Errorf("%s: %s", c.path, note))
	}
}

// kind returns the kind with a name.
func (c *Cluster) kind(name string) capacityfile.Kind {
	return c.file.Kinds[slices.IndexFunc(c.file.Kinds, func(k capacityfile.Kind) bool { return k.Name == name })]
}

// agent returns the command line of a kind's agents, without the parts that only the head knows.
func (c *Cluster) agent(k capacityfile.Kind) provider.Agent {
	return provider.Agent{Golaunch: c.golaunch, Coordinator: "HEAD", Flags: k.Agent}
}

// provider returns the provider of a kind, for calls from this machine.
func (c *Cluster) provider(ctx context.Context, k capacityfile.Kind) (provider.Provider, error) {
	p, err := provider.New(ctx, c.file, k, c.agent(k), "")
	if err != nil {
		return nil, usage.Errorf("%s: %s: %w", c.path, k.Name, err)
	}
	return p, nil
}

// clouds returns the providers that make machines in a cloud.
func (c *Cluster) clouds(ctx context.Context) (all []*provider.Cloud, err error) {
	for _, k := range c.file.Kinds {
		if !slices.Contains(capacityfile.Clouds, k.Provider) {
			continue
		}
		p, err := c.provider(ctx, k)
		if err != nil {
			return nil, err
		}
		all = append(all, p.(*provider.Cloud))
	}
	return all, nil
}

// limited returns a context that bounds a call of a kind's provider.
func limited(ctx context.Context, k capacityfile.Kind) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, k.Limit, fmt.Errorf("the provider did not answer within %v", k.Limit))
}

// DryRun writes the command lines that would create the head and a node of each kind.
func (c *Cluster) DryRun(ctx context.Context, w io.Writer) error {
	c.note()
	var b bytes.Buffer
	for _, k := range c.file.Kinds {
		p, err := provider.Sample(ctx, c.file, k, c.agent(k))
		if err != nil {
			return usage.Errorf("%s: %s: %w", c.path, k.Name, err)
		}
		head := ""
		if k.Name == c.file.Head.Kind {
			head = "the head, and "
		}
		fmt.Fprintf(&b, "# %s: %s%d to %d nodes, each by\n", k.Name, head, k.Min, k.Max)
		words := p.Line(k.Name + "-TAG")
		for i, word := range words {
			words[i] = shellword.Quote(word)
		}
		fmt.Fprintln(&b, strings.Join(words, " "))
	}
	where := "this machine"
	if c.file.Head.Host != "" {
		where = c.file.Head.Host
	} else if c.file.Head.Kind != "" {
		where = "the machine " + c.headTag()
	}
	fmt.Fprintf(&b, "# on %s\n%s\n", where, shellword.Quote(c.golaunch)+" "+strings.Join(c.coordinatorWords("~/"+c.dir()), " "))
	_, err := w.Write(b.Bytes())
	return err
}

// dir returns the directory of the cluster's files on the head, as a path below the home directory.
func (c *Cluster) dir() string { return ".golaunch/clusters/" + c.file.Name }

// coordinatorWords returns the coordinator's arguments, for files in dir.
func (c *Cluster) coordinatorWords(dir string) []string {
	words := []string{"coordinator", "--json", "--capacity=" + dir + "/cluster.yaml", "--state-dir=" + dir + "/state"}
	if c.file.Listen != "" {
		words = append(words, "--listen="+c.file.Listen)
	}
	return words
}

// Up starts the cluster, or changes it according to the file.
func (c *Cluster) Up(ctx context.Context) error {
	c.note()
	h, err := c.findHead(ctx)
	if err != nil {
		return err
	}
	var was state
	if h != nil {
		if was, err = h.look(ctx, c.dir()); err != nil {
			return err
		}
	}
	now, err := c.values()
	if err != nil {
		return err
	}
	switch changes := difference(was.values, now); {
	case was.values == "":
		if err := c.check(ctx, h); err != nil {
			return err
		}
	case len(changes) > 0:
		if ok, err := c.Confirm(fmt.Sprintf("cluster %s changes:\n%s\nThe coordinator restarts; jobs go on. Change it?", c.file.Name, strings.Join(changes, "\n"))); err != nil || !ok {
			return errors.Join(err, unless(ok || err != nil, errNotConfirmed))
		}
	case was.address != "":
		c.Say(fmt.Sprintf("cluster %s is up as the file says; nothing has changed", c.file.Name))
		c.hint(h, was.address)
		return nil
	}
	if h == nil {
		if h, err = c.makeHead(ctx); err != nil {
			return err
		}
		if was, err = h.look(ctx, c.dir()); err != nil {
			return err
		}
	}
	text, err := c.rewritten(ctx, h, was.home)
	if err != nil {
		return err
	}
	if err := c.deliver(ctx, h, text, now); err != nil {
		return err
	}
	address, err := c.start(ctx, h, was)
	if err != nil {
		return err
	}
	c.Say(fmt.Sprintf("cluster %s is up; its coordinator is at %s on %s", c.file.Name, address, h.name))
	c.hint(h, address)
	return nil
}

func unless(ok bool, err error) error {
	if ok {
		return nil
	}
	return err
}

// listensAt reports whether the file names the address at which the coordinator listens.
func (c *Cluster) listensAt() bool {
	host, _, err := net.SplitHostPort(c.file.Listen)
	return c.file.Listen != "" && (err != nil || host != "")
}

// hint tells the user how to use the cluster.
func (c *Cluster) hint(h *head, address string) {
	if at, err := netip.ParseAddrPort(address); err == nil && at.Addr().IsLoopback() && !c.listensAt() {
		advice := fmt.Sprintf("so give the address of an interface as listen in %s, and run golaunch up again", c.path)
		if c.file.Ray {
			advice = "so give it one, and run golaunch up again"
		}
		c.Warn(fmt.Errorf("no other machine reaches the coordinator at %s: %s has no default route, %s", address, h.name, advice))
	}
	if h.ssh == nil {
		c.Say(fmt.Sprintf("golaunch --coordinator %s -- COMMAND runs a job; golaunch down %s ends the cluster", address, c.path))
		return
	}
	c.Say(fmt.Sprintf("golaunch exec %[1]s 'golaunch -- COMMAND' runs a job; golaunch attach %[1]s opens a shell; golaunch down %[1]s ends the cluster", c.path))
}

// check finds problems before anything is started. It asks the providers that this machine can call
// for their nodes.
func (c *Cluster) check(ctx context.Context, h *head) error {
	for _, k := range c.file.Kinds {
		cloud := slices.Contains(capacityfile.Clouds, k.Provider)
		if !cloud && (h == nil || h.ssh != nil) || cloud && h != nil && h.ssh != nil && c.file.Head.Kind == "" {
			continue // only the head has the programs and keys for this provider
		}
		p, err := c.provider(ctx, k)
		if err != nil {
			return err
		}
		ctx, cancel := limited(ctx, k)
		if m, is := p.(*provider.Cloud); is {
			err = c.checkOthers(ctx, m)
		} else {
			_, err = p.List(ctx)
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		cancel()
		if err != nil {
			return fmt.Errorf("%s: cannot list the nodes: %w", k.Name, err)
		}
	}
	return nil
}

// checkOthers fails if machines with the cluster's tag exist before the cluster is started, since
// they may be those of another cluster, and golaunch down would delete them too.
func (c *Cluster) checkOthers(ctx context.Context, p *provider.Cloud) error {
	all, err := p.Cluster(ctx)
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Tag != c.headTag() {
			return fmt.Errorf("%s is there already (%s): another head has a cluster named %s; give this one another name, or end that with golaunch down", m.Tag, m.State, c.file.Name)
		}
	}
	return nil
}

// deliver writes the files that the coordinator reads to the head.
func (c *Cluster) deliver(ctx context.Context, h *head, text []byte, values string) error {
	r, w := io.Pipe()
	go func() {
		a := provider.NewArchive(w)
		a.Text("cluster.yaml", string(text))
		a.Text("values", values)
		if h.ssh != nil {
			a.Add("golaunch", c.golaunch)
			if c.file.Key != "" {
				a.Add("given_key", expand(c.file.Key))
			}
		}
		for i, f := range c.file.Files {
			a.Add(fmt.Sprintf("files/%d", i), expand(f.From))
		}
		w.CloseWithError(a.Close())
	}()
	defer func() { _ = r.Close() }() // Close returns no error here
	fit := ""
	if h.ssh != nil {
		fit = fmt.Sprintf(`why=$(%s) || { echo "$why" >&2; exit 1; }`+"\n", provider.Fit())
	}
	_, err := h.run(ctx, r, fit+fmt.Sprintf("umask 077; mkdir -p %[1]s && cd %[1]s && rm -rf files new && mkdir new && tar -xf - -C new && cp -Rf new/. . && rm -rf new", home(c.dir())))
	if err != nil {
		return fmt.Errorf("cannot write to %s on %s: %w", "~/"+c.dir(), h.name, err)
	}
	return nil
}

// home returns a path below the home directory, as a word for the shell.
func home(path string) string { return `"$HOME"/` + shellword.Quote(path) }

// expand replaces ~/ by the home directory.
func expand(path string) string {
	if rest, found := strings.CutPrefix(path, "~/"); found {
		return filepath.Join(os.Getenv("HOME"), rest)
	}
	return path
}

// processes defines the shell function pids, which prints the pids of the processes that have a
// given argument. The argument must contain a dot. The pattern for grep has \. instead of the dot,
// so that grep does not find its own process.
const processes = `pids() {
	grep -lsxz -e "$(printf %s "$1" | sed 's/[][\.*^$]/\\&/g')" /proc/[0-9]*/cmdline | cut -d / -f 3
}
`

const (
	// stopTime is how long a coordinator may take to end, in tenths of a second. startTime is how
	// long it may take to listen: before that, it asks clouds what the machines of a kind have.
	stopTime  = 200
	startTime = 5 * time.Minute
	// setupLimit bounds the run of the head's setup commands.
	setupLimit = time.Hour
)

// stopScript returns a script that ends the coordinator on a head. It also defines the function
// stop, which ends the processes that have a given argument.
func (c *Cluster) stopScript() string {
	return processes + fmt.Sprintf(`stop() {
	i=0
	while all=$(pids "$1"); [ -n "$all" ]; do
		[ $i -gt 0 ] || kill -TERM $all 2>/dev/null
		[ $i -lt %d ] || { kill -KILL $all 2>/dev/null; break; }
		i=$((i + 1))
		sleep 0.1
	done
}
d=%s
stop "--state-dir=$d/state"
`, stopTime, home(c.dir()))
}

// start runs the setup commands of the head, and starts the coordinator there. If a coordinator
// runs already, the new one replaces it.
func (c *Cluster) start(ctx context.Context, h *head, was state) (address string, err error) {
	commands := c.file.HeadSetup
	if c.file.Head.Kind != "" {
		commands = slices.Concat(c.kind(c.file.Head.Kind).Setup, commands)
		limited, cancel := context.WithTimeoutCause(ctx, setupLimit, fmt.Errorf("it did not end within %v", setupLimit))
		_, err := h.run(limited, nil, "cd "+home(c.dir())+" || exit\n"+provider.PlaceScript(provider.Files(c.file)))
		cancel()
		if err != nil {
			return "", fmt.Errorf("cannot put the files where they belong on %s: %w", h.name, err)
		}
	}
	for _, line := range commands {
		c.Say("head: " + line)
		limited, cancel := context.WithTimeoutCause(ctx, setupLimit, fmt.Errorf("the command has not ended within %v", setupLimit))
		_, err := h.run(limited, nil, "shell=sh; ! command -v bash >/dev/null || shell=bash; exec $shell -l -c "+shellword.Quote(line))
		cancel()
		if err != nil {
			return "", fmt.Errorf("the head's command failed: %s: %w", line, err)
		}
	}
	self := c.golaunch
	if h.ssh != nil {
		self = was.home + "/" + c.dir() + "/golaunch"
	}
	words := c.coordinatorWords(was.home + "/" + c.dir())
	for i, w := range words {
		words[i] = shellword.Quote(w)
	}
	script := c.stopScript() + fmt.Sprintf(`
cd %[4]s || exit
[ ! -e "$d/log" ] || [ "$(wc -c <"$d/log")" -lt 1048576 ] || mv -f "$d/log" "$d/log.1"
: >"$d/out"
setsid %[1]s %[2]s </dev/null >"$d/out" 2>>"$d/log" &
i=0
until [ -s "$d/out" ]; do
	kill -0 $! 2>/dev/null || { tail -n 1 "$d/log" >&2; exit 1; }
	i=$((i + 1))
	[ $i -lt %[3]d ] || { echo "it does not listen after %[5]v" >&2; exit 1; }
	sleep 0.1
done
cat "$d/out"
`, shellword.Quote(self), strings.Join(words, " "), int(startTime/(100*time.Millisecond)), c.workDir(h), startTime)
	bounded, cancel := context.WithTimeoutCause(ctx, startTime+answerLimit, fmt.Errorf("%s did not answer within %v", h.name, startTime+answerLimit))
	out, err := h.run(bounded, nil, script)
	cancel()
	if err != nil {
		return "", fmt.Errorf("the coordinator on %s does not start: %w", h.name, err)
	}
	if address = addressIn(out); address == "" {
		return "", fmt.Errorf("the coordinator on %s printed %q in place of its address", h.name, out)
	}
	return address, c.startNode(ctx, h, self, address)
}

// workDir returns the coordinator's working directory, in which the commands of the file run.
func (c *Cluster) workDir(h *head) string {
	if h.ssh != nil {
		return `"$d"`
	}
	dir, err := os.Getwd()
	if err != nil {
		return `"$d"`
	}
	return shellword.Quote(dir)
}

// startNode starts an agent on the head if the head is a machine of a kind, because in Ray, too,
// the head runs jobs.
func (c *Cluster) startNode(ctx context.Context, h *head, self, address string) error {
	if c.file.Head.Kind == "" {
		return nil
	}
	words := []string{self, "agent", "--coordinator=" + address, "--label=golaunch.head=" + c.file.Name}
	words = append(words, c.kind(c.file.Head.Kind).Agent...)
	for i, w := range words {
		words[i] = shellword.Quote(w)
	}
	_, err := h.run(ctx, nil, processes+fmt.Sprintf("d=%s\n[ -n \"$(pids %s)\" ] || setsid %s </dev/null >\"$d/agent.log\" 2>&1 &", home(c.dir()),
		shellword.Quote("--label=golaunch.head="+c.file.Name), strings.Join(words, " ")))
	if err != nil {
		return fmt.Errorf("cannot start an agent on %s: %w", h.name, err)
	}
	return nil
}
