package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/launcher/internal/capacityfile"
	"github.com/golaunch/golaunch/launcher/internal/provider"
	"github.com/golaunch/golaunch/launcher/internal/shellword"
)

// downLimit bounds how long all nodes may take to end. listLimit bounds how long clouds may take to
// list them.
const downLimit, listLimit = 20 * time.Minute, 5 * time.Minute

// Down ends the cluster with all its nodes. It returns once their providers list none of these
// nodes.
func (c *Cluster) Down(ctx context.Context) error {
	var clouds []*provider.Cloud
	var err error
	if c.file.Head.Host == "" { // if Host is set, that host has the clouds' credentials, and this machine may have none
		if clouds, err = c.clouds(ctx); err != nil {
			return err
		}
	}
	left, err := machines(ctx, clouds)
	if err != nil {
		return err
	}
	h, was, lost := c.lastHead(ctx, left)
	if lost != nil {
		if c.file.Head.Kind == "" || ctx.Err() != nil {
			return lost
		}
		c.Warn(fmt.Errorf("%w; down deletes what the clouds list without it", lost))
	}
	others := c.notClouds()
	if was.values == "" && len(left) == 0 && lost == nil {
		if err := removeRest(ctx, clouds); err != nil {
			return err
		}
		if c.file.Head.Kind != "" && len(others) > 0 {
			c.Say(fmt.Sprintf("cluster %s is not up: its cloud has no head of it", c.file.Name))
			return nil
		}
		c.Say(fmt.Sprintf("cluster %s is not up: nothing is left of it", c.file.Name))
		return nil
	}
	question := fmt.Sprintf("End cluster %s with its jobs and all its nodes?", c.file.Name)
	if len(left) > 0 {
		question = fmt.Sprintf("End cluster %s with its jobs and all its nodes, such as %s?", c.file.Name, left[0].machine.Tag)
	}
	if ok, err := c.Confirm(question); err != nil || !ok {
		return errors.Join(err, unless(ok || err != nil, errNotConfirmed))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, downLimit, fmt.Errorf("not all nodes have ended within %v", downLimit))
	defer cancel()
	if was.values != "" {
		if err := c.giveBack(ctx, h, was); err != nil {
			if len(others) > 0 || len(clouds) == 0 { // only the head's log has the nodes of such kinds
				return err
			}
			c.Warn(err)
		}
	}
	if err := c.sweep(ctx, clouds); err != nil {
		return err
	}
	if err := removeRest(ctx, clouds); err != nil {
		return err
	}
	if lost != nil && len(others) > 0 {
		return fmt.Errorf("nodes of %s may be left, which only the head knew: %w", strings.Join(others, ", "), lost)
	}
	c.Say(fmt.Sprintf("cluster %s is down; nothing is left of it", c.file.Name))
	return nil
}

// lastReach bounds the wait for a head that has to end. It is short, because the cloud too can list
// the cluster's machines.
const lastReach = time.Minute

// lastHead returns the head of a cluster that has to end, with its state. An error says why the
// state is unknown.
func (c *Cluster) lastHead(ctx context.Context, left []leftover) (h *head, was state, err error) {
	if c.file.Head.Kind == "" {
		if h, err = c.findHead(ctx); err == nil {
			was, err = h.look(ctx, c.dir())
		}
		return h, was, err
	}
	i := slices.IndexFunc(left, func(l leftover) bool { return l.machine.Tag == c.headTag() })
	switch {
	case len(left) == 0 && !(len(c.notClouds()) > 0 && c.reached()):
		return nil, was, nil
	case i < 0:
		return nil, was, fmt.Errorf("the head %s is not there", c.headTag())
	case !left[i].machine.Running:
		return nil, was, fmt.Errorf("the head %s cannot be reached: %s", c.headTag(), left[i].machine.State)
	}
	if h, err = c.reach(ctx, left[i].cloud, left[i].machine, lastReach); err == nil {
		was, err = h.look(ctx, c.dir())
	}
	return h, was, err
}

// reached reports whether this machine has connected to a head of the cluster since the last
// golaunch down.
func (c *Cluster) reached() bool {
	_, err := os.Stat(filepath.Join(expand("~/"+c.dir()), "known_hosts"))
	return err == nil
}

// notClouds returns the names of the kinds whose nodes are not in a cloud. Only the head's log has
// these nodes.
func (c *Cluster) notClouds() (names []string) {
	for _, k := range c.file.Kinds {
		if !slices.Contains(capacityfile.Clouds, k.Provider) {
			names = append(names, k.Name)
		}
	}
	return names
}

// giveBack ends the coordinator, and then all nodes for which the coordinator has asked.
func (c *Cluster) giveBack(ctx context.Context, h *head, was state) error {
	self := c.golaunch
	if h.ssh != nil {
		self = was.home + "/" + c.dir() + "/golaunch"
	}
	c.Say("the coordinator ends, and then its nodes")
	out, err := h.run(ctx, nil, c.stopScript()+fmt.Sprintf(`
stop %[1]s
cd %[3]s || exit
if [ -e "$d/state/log" ]; then # else the coordinator has never started
	%[2]s coordinator --give-back --capacity="$d/cluster.yaml" --state-dir="$d/state" 2>"$d/down" || { tail -n 1 "$d/down" >&2; exit 1; }
	cat "$d/down"
fi
rm -rf "$d"`, shellword.Quote("--label=golaunch.head="+c.file.Name), shellword.Quote(self), c.workDir(h)))
	for line := range strings.Lines(out) {
		c.Say(strings.TrimPrefix(strings.TrimSpace(line), "golaunch: "))
	}
	if err != nil {
		return fmt.Errorf("cannot end the nodes from %s, with the file of the last golaunch up: %w", h.name, err)
	}
	return nil
}

// removeRest removes the resources that a cloud made for machines that are gone, and this machine's
// directory with the keys for them.
func removeRest(ctx context.Context, clouds []*provider.Cloud) error {
	for _, p := range clouds {
		if err := p.RemoveRest(ctx); err != nil {
			return fmt.Errorf("cannot delete what the machines have left: %w", err)
		}
		if err := os.RemoveAll(filepath.Dir(p.Login().KnownHosts)); err != nil {
			return err
		}
	}
	return nil
}

// leftover is a machine that still exists, and its provider.
type leftover struct {
	cloud   *provider.Cloud
	machine provider.Machine
}

// machines returns the machines of the cluster in all clouds.
func machines(ctx context.Context, clouds []*provider.Cloud) (all []leftover, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listLimit, fmt.Errorf("the cloud did not answer within %v", listLimit))
	defer cancel()
	for _, p := range clouds {
		found, err := p.Cluster(ctx)
		if err != nil {
			return nil, fmt.Errorf("cannot list the machines: %w", err)
		}
		for _, m := range found {
			if !slices.ContainsFunc(all, func(l leftover) bool { return l.machine.ID == m.ID }) {
				all = append(all, leftover{p, m})
			}
		}
	}
	return all, nil
}

// sweep deletes the machines of the cluster in all clouds, including its head, until the clouds
// list no machine with the cluster's tag.
func (c *Cluster) sweep(ctx context.Context, clouds []*provider.Cloud) error {
	for {
		left, err := machines(ctx, clouds)
		if err == nil && len(left) == 0 {
			return nil
		}
		for _, p := range clouds {
			var mine []provider.Machine
			for _, l := range left {
				if l.cloud == p {
					mine = append(mine, l.machine)
				}
			}
			if len(mine) > 0 && err == nil {
				err = p.Remove(ctx, mine)
			}
		}
		if err != nil {
			c.Warn(err)
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			var tags []string
			for _, l := range left {
				tags = append(tags, l.machine.Tag)
			}
			return fmt.Errorf("%w: %d machines are left: %.400s", context.Cause(ctx), len(tags), strings.Join(tags, ", "))
		}
	}
}
