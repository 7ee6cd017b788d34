package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/report"
)

// phase is a part of the measurements.
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
	if s.own, s.theirs, err = split(p.cores); err != nil {
		return nil, err
	}
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

func (s *scene) register(ctx context.Context) error {
	if err := s.coordinate(ctx); err != nil {
		return err
	}
	s.empty = s.head.memory()
	start := time.Now()
	if err := s.swarm(ctx); err != nil {
		return err
	}
	s.took("register", start)
	s.add("register: coordinator's processor", s.head.cpu().Seconds(), "s", true)
	s.add("memory per agent, at once", s.each(), "bytes", false)
	return nil
}

// each is the memory of an agent in the coordinator.
func (s *scene) each() float64 { return (s.head.memory() - s.empty) / float64(s.Agents) }

// rest measures the cost of the agents when nothing happens.
func (s *scene) rest(ctx context.Context) error {
	if err := s.reset(); err != nil {
		return err
	}
	registered := s.head.cpu()
	if err := pause(ctx, settle); err != nil {
		return err
	}
	before := s.head.cpu()
	s.add("register: coordinator's processor afterwards", (before - registered).Seconds(), "s", true)
	if err := pause(ctx, s.quiet); err != nil {
		return err
	}
	s.add("memory per agent, at rest", s.each(), "bytes", false)
	s.add("at rest", 100*(s.head.cpu()-before).Seconds()/s.quiet.Seconds(), "% of a core", true)
	return s.late("at rest: slowest heartbeat")
}

// start measures the time from a command until all its ranks have started.
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

// fail measures the time from the failure of all ranks until all have started again.
func (s *scene) fail(ctx context.Context) error {
	w, err := s.client.Watch(ctx, jobID)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := s.reset(); err != nil {
		return err
	}
	if err := pause(ctx, settle); err != nil {
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
	s.add("failures: growth of the coordinator, at once", (s.head.memory()/before-1)*100, "%", false)
	if err := s.late("failure: slowest heartbeat"); err != nil {
		return err
	}
	if err := pause(ctx, settle); err != nil {
		return err
	}
	s.add("failures: growth of the coordinator, at rest", (s.head.memory()/before-1)*100, "%", false)
	return nil
}

// settle is the time in which a coordinator must give back memory that it does not need any more.
const settle = 10 * time.Second

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

// logs measures the time until a line of each rank has arrived, and again after the connection has
// broken.
func (s *scene) logs(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := s.connection(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // the stream of the client has ended
	start := time.Now()
	r, err := c.Logs(ctx, jobID, report.LogFilter{Attempt: -1, Follow: true})
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

// restart measures the time from the end of the coordinator until all agents have reported their
// ranks to the next coordinator.
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
		case status.Phase == string(job.Running) && status.Ranks == s.Ranks:
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

// stop measures the time until all agents know that the job is over.
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

// silence makes a tenth of the agents fall silent, with open connections, and measures the time
// until the coordinator has noticed the last of them.
func (s *scene) silence(ctx context.Context) error {
	start := time.Now()
	s.swarms[0].stop()
	for range s.Agents / few {
		if _, err := s.head.until("was lost: its agent was silent"); err != nil {
			return err
		}
	}
	s.add("a tenth falls silent: all are found", time.Since(start).Seconds(), "s", false)
	return nil
}

// takeover measures the time from the end of the leading coordinator until all agents have reported
// their ranks to another coordinator.
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

// leader returns the index of the leading coordinator.
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
	return 0, fmt.Errorf("no coordinator leads: %v", status.Coordinators)
}
