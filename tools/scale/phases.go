package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/cluster"
	"github.com/golaunch/golaunch/internal/job"
	"github.com/golaunch/golaunch/internal/mtls"
	"github.com/golaunch/golaunch/internal/replica"
	"github.com/golaunch/golaunch/internal/session"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/placement"
)

// few is one of so many agents that is in the smaller swarm, which falls silent at the end.
const few = 10

// scene is a cluster of one size.
type scene struct {
	plan
	*result
	dir, port, target string
	// head is the coordinator, and others further ones.
	head   *process
	others []*process
	swarms []*process
	client *session.Client
	conns  conns
	// heads counts the coordinators that were started.
	heads int
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

// drop breaks them.
func (c *conns) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.all {
		_ = conn.Close() // some are closed
	}
	c.all = nil
}

const token = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"

// phase is a part of what is measured.
type phase struct {
	name string
	do   func(context.Context) error
}

// at measures a cluster of one size.
func (p plan) at(ctx context.Context, dir string, agents int) (*result, error) {
	if err := errors.Join(os.Setenv("GOLAUNCH_TOKEN", token), os.MkdirAll(dir, 0o700)); err != nil {
		return nil, err
	}
	port, err := free()
	if err != nil {
		return nil, err
	}
	s := &scene{plan: p, result: &result{Agents: agents, Ranks: agents * p.ranks}, dir: dir, port: port, target: "127.0.0.1:" + port}
	defer s.end()
	begun := p.from == ""
	for _, phase := range []phase{
		{"register", s.register},
		{"rest", s.rest},
		{"start", s.start},
		{"fail", s.fail},
		{"status", s.status},
		{"logs", s.logs},
		{"restart", s.restart},
		{"stop", s.stop},
		{"silence", s.silence},
		{"takeover", s.takeover},
	} {
		if begun = begun || phase.name == p.from; !begun {
			continue
		}
		if err := phase.do(ctx); err != nil {
			return s.result, fmt.Errorf("%s: %w", phase.name, err)
		}
		if phase.name == p.until {
			break
		}
	}
	return s.result, nil
}

// free is a port at which nobody listens.
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
		_ = s.client.Close() // its job may have ended it
		s.client = nil
	}
	for _, p := range append(append([]*process{s.head}, s.others...), s.swarms...) {
		if p != nil {
			p.end()
		}
	}
	s.head, s.others, s.swarms = nil, nil, nil
}

// coordinate starts the coordinator, with what it had kept.
func (s *scene) coordinate(ctx context.Context) (err error) {
	if s.head, err = s.coordinator(ctx, s.target, filepath.Join(s.dir, "state")); err == nil {
		_, err = s.head.until("golaunch agent --coordinator")
	}
	return err
}

// coordinator starts one, perhaps one of several.
func (s *scene) coordinator(ctx context.Context, listen, state string, peers ...string) (*process, error) {
	if s.profile != "" {
		s.heads++
		p, err := begin(headOf(ctx, listen, state, filepath.Join(s.profile, fmt.Sprintf("%d-%d.pprof", s.Agents, s.heads)), peers))
		if err == nil {
			p.profiled = true
		}
		return p, err
	}
	args := []string{"coordinator", "--listen", listen, "--state-dir", state}
	if len(peers) > 0 {
		args = append(args, "--peers", strings.Join(peers, ","))
	}
	return begin(exec.CommandContext(ctx, s.golaunch, args...))
}

// swarm has all agents join, at once.
func (s *scene) swarm(ctx context.Context) error {
	for _, part := range [][2]int{{0, s.Agents / few}, {s.Agents / few, s.Agents}} {
		p, err := begin(swarmOf(ctx, part[0], part[1], s.ranks, s.loud, s.target))
		if err != nil {
			return err
		}
		s.swarms = append(s.swarms, p)
	}
	return errors.Join(s.all("join"), s.heard("joined"))
}

// all tells all swarms something, and heard waits until all have said something.
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

// measured adds the time since start.
func (s *scene) took(name string, start time.Time) {
	s.add(name, time.Since(start).Seconds(), "s", true)
}

func (s *scene) register(ctx context.Context) error {
	if err := s.coordinate(ctx); err != nil {
		return err
	}
	before, start := s.head.memory(), time.Now()
	if err := s.swarm(ctx); err != nil {
		return err
	}
	s.took("register", start)
	s.add("register: coordinator's processor", s.head.cpu().Seconds(), "s", true)
	s.add("memory per agent", (s.head.memory()-before)/float64(s.Agents), "bytes", false)
	return nil
}

// rest is what the agents cost when nothing happens.
func (s *scene) rest(ctx context.Context) error {
	if err := s.reset(); err != nil {
		return err
	}
	before := s.head.cpu()
	if err := pause(ctx, s.quiet); err != nil {
		return err
	}
	s.add("at rest", 100*(s.head.cpu()-before).Seconds()/s.quiet.Seconds(), "% of a core", true)
	return s.late("at rest: slowest heartbeat")
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// late adds the slowest heartbeat since the last time.
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

// submission is a job on all agents, which says everything that jobs of a command line say.
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

// start is from a command until all its ranks have started.
func (s *scene) start(ctx context.Context) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	start, before := time.Now(), s.head.cpu()
	w, err := s.client.Submit(ctx, s.submission())
	if err == nil {
		defer w.Close()
		err = runs(ctx, w, 0)
	}
	s.took("start", start)
	s.add("start: coordinator's processor", (s.head.cpu() - before).Seconds(), "s", true)
	return err
}

// runs waits until an attempt runs.
func runs(ctx context.Context, w *session.Watch, attempt int) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	go func() {
		select {
		case err := <-trouble:
			fail(err)
		case <-ctx.Done():
		}
	}()
	for {
		u, err := w.Next(ctx)
		switch {
		case err != nil:
			return errors.Join(err, context.Cause(ctx))
		case u.Result != nil:
			return fmt.Errorf("the job is over: %s", u.Result.Reason)
		case u.Decision != nil && u.Decision.Reason == fmt.Sprintf("attempt %d runs", attempt):
			return nil
		}
	}
}

// fail is from the failure of all ranks until all have started anew.
func (s *scene) fail(ctx context.Context) error {
	w, err := s.client.Watch(ctx, jobID)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := s.reset(); err != nil {
		return err
	}
	before := s.head.memory()
	start, used := time.Now(), s.head.cpu()
	for i := range s.failures {
		if err := errors.Join(s.all("fail"), runs(ctx, w, i+1)); err != nil {
			return err
		}
	}
	n := float64(s.failures)
	s.add("failure of all ranks to all started", time.Since(start).Seconds()/n, "s", true)
	s.add("failure: coordinator's processor", (s.head.cpu()-used).Seconds()/n, "s", true)
	s.add("failures: growth of the coordinator", (s.head.memory()/before-1)*100, "%", false)
	return s.late("failure: slowest heartbeat")
}

const looks = 5

func (s *scene) status(ctx context.Context) error {
	if err := s.reset(); err != nil {
		return err
	}
	start := time.Now()
	for range looks {
		status, err := s.client.Status(ctx)
		if err == nil && len(status.Nodes) != s.Agents {
			err = fmt.Errorf("status has %d nodes", len(status.Nodes))
		}
		if err != nil {
			return err
		}
	}
	s.add("status", time.Since(start).Seconds()/looks, "s", true)
	return s.late("status: slowest heartbeat")
}

// logs is until a line of each rank has come, and again after the connection has broken.
func (s *scene) logs(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := s.connection(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // its stream has ended
	start := time.Now()
	r, err := c.Logs(ctx, jobID, wire.LogFilter{Attempt: -1, Follow: true})
	if err != nil {
		return err
	}
	defer r.Close()
	if err := chunks(ctx, r, s.Ranks); err != nil {
		return err
	}
	s.took("logs: attach", start)
	return nil
}

func chunks(ctx context.Context, r *session.LogReader, n int) error {
	for n > 0 {
		chunk, err := r.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("the logs end, and %d ranks are missing", n)
		case err != nil:
			return err
		case chunk.Missing != "":
			return errors.New(chunk.Missing)
		}
		n--
	}
	return nil
}

// restart is from the end of the coordinator until all agents have told the next one what they run.
func (s *scene) restart(ctx context.Context) error {
	s.head.end()
	s.conns.drop()
	start := time.Now()
	if err := s.coordinate(ctx); err != nil {
		return err
	}
	s.took("coordinator restart: it listens", start)
	if err := s.heard("restated"); err != nil {
		return err
	}
	s.took("coordinator restart: all agents are back", start)
	return s.answers(ctx, start, "coordinator restart: the job runs on")
}

// answers waits until the coordinator answers that all ranks run.
func (s *scene) answers(ctx context.Context, start time.Time, name string) error {
	for {
		status, err := s.client.Job(ctx, jobID)
		switch {
		case err != nil:
			return err
		case status.Phase == job.Running && status.Ranks == s.Ranks:
			s.took(name, start)
			return nil
		case time.Since(start) > limit:
			return fmt.Errorf("the job is %s after %v", status.Phase, limit)
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// stop is until all agents know that the job is over.
func (s *scene) stop(ctx context.Context) error {
	start := time.Now()
	if _, err := s.client.Stop(ctx, jobID, 130, "it was measured"); err != nil {
		return err
	}
	if err := s.heard("finished"); err != nil {
		return err
	}
	s.took("stop", start)
	return nil
}

// silence has a tenth of the agents fall silent without a word, whose connections stay, and is until the last of them is found.
func (s *scene) silence(ctx context.Context) error {
	start := time.Now()
	s.swarms[0].stop()
	for range s.Agents / few {
		if _, err := s.head.until("was lost: no word"); err != nil {
			return err
		}
	}
	s.add("a tenth falls silent: all are found", time.Since(start).Seconds(), "s", false)
	return nil
}

// takeover is from the end of the coordinator that leads until all agents have told another what they run.
func (s *scene) takeover(ctx context.Context) error {
	s.end()
	peers := []string{"127.0.0.1:" + s.port, "127.0.0.2:" + s.port, "127.0.0.3:" + s.port}
	s.target = strings.Join(peers, ",")
	for _, listen := range peers {
		p, err := s.coordinator(ctx, listen, filepath.Join(s.dir, listen), peers...)
		if err != nil {
			return err
		}
		s.others = append(s.others, p)
	}
	for _, p := range s.others {
		if _, err := p.until("golaunch agent --coordinator"); err != nil {
			return err
		}
	}
	start := time.Now()
	if err := s.swarm(ctx); err != nil {
		return err
	}
	s.took("three coordinators: register", start)
	if err := s.connect(ctx); err != nil {
		return err
	}
	start = time.Now()
	w, err := s.client.Submit(ctx, s.submission())
	if err == nil {
		err = runs(ctx, w, 0)
		w.Close()
	}
	if err != nil {
		return err
	}
	s.took("three coordinators: start", start)
	leader, err := s.leader(ctx)
	if err != nil {
		return err
	}
	if _, err := s.asked("made"); err != nil {
		return err
	}
	left := slices.Delete(slices.Clone(s.others), leader, leader+1)
	used := func() (sum time.Duration) {
		for _, p := range left {
			sum += p.cpu()
		}
		return sum
	}
	before := used()
	start = time.Now()
	s.others[leader].end()
	if err := s.heard("restated"); err != nil {
		return err
	}
	s.took("three coordinators, the one that leads dies: all agents are with another", start)
	made, err := s.asked("made")
	if err != nil {
		return err
	}
	s.add("three coordinators: connections of each agent for that", (made[0]+made[1])/float64(s.Agents), "", false)
	s.add("three coordinators: processor of the other two for that", (used() - before).Seconds(), "s", true)
	return s.answers(ctx, start, "three coordinators: the job runs on")
}

// leader is the index of the coordinator that leads.
func (s *scene) leader(ctx context.Context) (int, error) {
	status, err := s.client.Status(ctx)
	if err != nil {
		return 0, err
	}
	for i, at := range strings.Split(s.target, ",") {
		if len(status.Coordinators) > 0 && status.Coordinators[0] == at {
			return i, nil
		}
	}
	return 0, fmt.Errorf("nobody leads: %v", status.Coordinators)
}
