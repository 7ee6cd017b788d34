package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/placement"
)

// few is the number of agents for each agent in the smaller swarm, which falls silent at the end.
const few = 10

// scene is a cluster of one size.
type scene struct {
	plan
	*result
	dir, port, target string
	// head is the coordinator; others are further coordinators.
	head   *process
	others []*process
	swarms []*process
	client *session.Client
	conns  conns
	// heads counts the coordinators that were started.
	heads int
	// own are the cores of the coordinators, and theirs are the cores of the agents; none for all.
	own, theirs []int
	// empty is the memory of a coordinator without agents.
	empty float64
}

// conns are the client's connections.
type conns struct {
	mu  sync.Mutex
	all []net.Conn
}

func (c *conns) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all = append(c.all, conn)
	}
	return conn, err
}

// drop breaks the client's connections.
func (c *conns) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.all {
		_ = conn.Close() // some connections are already closed
	}
	c.all = nil
}

const token = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"

// free returns a port at which nothing listens.
func free() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

func (s *scene) end() {
	if s.client != nil {
		_ = s.client.Close() // the end of its job may have closed it
		s.client = nil
	}
	for _, p := range append(append([]*process{s.head}, s.others...), s.swarms...) {
		if p != nil {
			p.end()
		}
	}
	s.head, s.others, s.swarms = nil, nil, nil
}

// coordinate starts the coordinator, with its existing log.
func (s *scene) coordinate(ctx context.Context) (err error) {
	if s.head, err = s.coordinator(ctx, s.target, filepath.Join(s.dir, "state")); err == nil {
		_, err = s.head.until("golaunch agent --coordinator")
	}
	return err
}

// coordinator starts a coordinator, perhaps one of several.
func (s *scene) coordinator(ctx context.Context, listen, state string, peers ...string) (*process, error) {
	if s.profile != "" {
		s.heads++
		p, err := begin(headOf(ctx, listen, state, filepath.Join(s.profile, fmt.Sprintf("%d-%d.pprof", s.Agents, s.heads)), peers), s.own)
		if err == nil {
			p.profiled = true
		}
		return p, err
	}
	args := []string{"coordinator", "--listen", listen, "--state-dir", state}
	if len(peers) > 0 {
		args = append(args, "--peers", strings.Join(peers, ","))
	}
	return begin(exec.CommandContext(ctx, s.golaunch, args...), s.own)
}

// swarm makes all agents join at once.
func (s *scene) swarm(ctx context.Context) error {
	for _, part := range [][2]int{{0, s.Agents / few}, {s.Agents / few, s.Agents}} {
		p, err := begin(swarmOf(ctx, part[0], part[1], s.ranks, s.loud, s.target), s.theirs)
		if err != nil {
			return err
		}
		s.swarms = append(s.swarms, p)
	}
	return errors.Join(s.all("join"), s.heard("joined"))
}

// all gives all swarms an order. heard waits until all have answered.
func (s *scene) all(what string) (err error) {
	for _, p := range s.swarms {
		err = errors.Join(err, p.say("%s", what))
	}
	return err
}

func (s *scene) heard(what string) error {
	for _, p := range s.swarms {
		if _, err := p.until(what); err != nil {
			return err
		}
	}
	return nil
}

// took adds the time since start.
func (s *scene) took(name string, start time.Time) {
	s.add(name, time.Since(start).Seconds(), "s", true)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// late adds the time of the slowest heartbeat since the last call.
func (s *scene) late(name string) error {
	all, err := s.asked("late")
	if err == nil {
		s.add(name, slices.Max(all), "s", false)
	}
	return err
}

// asked asks all swarms for a number.
func (s *scene) asked(what string) (all []float64, err error) {
	if err := s.all(what); err != nil {
		return nil, err
	}
	for _, p := range s.swarms {
		line, err := p.until(what + " ")
		if err != nil {
			return nil, err
		}
		var number float64
		if _, err := fmt.Sscanf(line, what+" %g", &number); err != nil {
			return nil, err
		}
		all = append(all, number)
	}
	return all, nil
}

// reset forgets the slowest heartbeat.
func (s *scene) reset() error {
	if err := s.all("late"); err != nil {
		return err
	}
	return s.heard("late ")
}

const jobID = "scale"

// submission is a job on all agents, with everything that a submitted command line has.
func (s *scene) submission() replica.Submission {
	return replica.Submission{
		Spec: cluster.Spec{Job: job.Spec{
			ID: jobID, MaxRestarts: 1000, Grace: 30 * time.Second,
			Request: placement.Request{MinNodes: s.Agents, MaxNodes: s.Agents, PerNode: []int{s.ranks}, GPU: true},
		}},
		Task: []byte(strings.Repeat("PATH=/usr/bin:/bin\n", 200)), Title: "python train.py", Detached: true,
		BackoffMin: time.Millisecond, BackoffMax: time.Millisecond,
	}
}

func (s *scene) connect(ctx context.Context) (err error) {
	s.client, err = s.connection(ctx)
	return err
}

func (s *scene) connection(ctx context.Context) (*session.Client, error) {
	key, err := mtls.LoadToken("", token)
	if err != nil {
		return nil, err
	}
	return session.Connect(ctx, session.ClientOptions{Target: s.target, Dial: s.conns.dial, TLS: mtls.Client(key, mtls.Identity{})})
}
