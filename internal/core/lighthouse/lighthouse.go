// Package lighthouse decides which replica groups train together, by the rules of torchft's
// lighthouse.
//
// A cohort is what torchft, its protocol and its users call a quorum. In golaunch's code, the word
// quorum means only a quorum of Raft.
//
// A replica is one start of a replica group. It sends heartbeats, and asks for a cohort before each
// step. [State.Step] takes an event and returns the cohort that follows, or why there is none. It
// reads no clock: each event has its time.
//
// The rules are those of torchft 0.2.0, with four differences. A replica whose processes have ended
// is [Gone] at once, before its heartbeat times out. A cohort is never empty. The IDs of cohorts
// grow over the life of a job: [New] continues from the last cohort. A request that arrives twice
// counts once, since a message to the coordinator may arrive twice.
package lighthouse

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Options are the options of torchft_lighthouse.
type Options struct {
	// MinReplicas is how many replicas a cohort needs, unless all members of the last cohort ask
	// again.
	MinReplicas int
	// JoinTimeout is how long the replicas that ask wait for other live replicas to ask.
	JoinTimeout time.Duration
	// HeartbeatTimeout is the silence after which a replica counts as dead.
	HeartbeatTimeout time.Duration
}

// MaxMembers bounds the data that the members of a cohort tell each other, in bytes.
const MaxMembers = 960 << 10

// MaxReplicas bounds the replicas of a group that are known at a time. Each start of the group is a
// replica.
const MaxReplicas = 64

// Replica is one start of a replica group.
type Replica struct {
	// ID is the replica's name, which no other start of the group has.
	ID    string
	Group int
}

// Event is something that happened to replicas.
//
//sumtype:decl
type Event interface{ event() }

type (
	// Heartbeat says that a replica is alive.
	Heartbeat struct{ Replica Replica }
	// Asked says that a replica asks for a cohort, and is alive.
	Asked struct{ Request Request }
	// Gone says that no replica of a group is alive.
	Gone struct{ Group int }
	// Tick says that time has passed.
	Tick struct{}
)

func (Heartbeat) event() {}
func (Asked) event()     {}
func (Gone) event()      {}
func (Tick) event()      {}

// Request is a replica's request for a cohort.
type Request struct {
	Replica
	// Call numbers the requests of a replica. Again says that this repeats a request that ended
	// with a cohort without the replica.
	Call  int64
	Again bool
	// ShrinkOnly keeps new replicas out of the cohort. CommitFailures counts the steps that the
	// replica could not commit.
	ShrinkOnly     bool
	CommitFailures int64
	// Member has the facts about the replica that the cohort's answer gives the other members.
	Member []byte
}

// Cohort is a set of replicas that train together.
type Cohort struct {
	// ID is a new ID if the members have changed or one of them could not commit. Otherwise it is
	// the ID of the last cohort.
	ID      int64
	Created time.Time
	// Members are the requests of the members, by ID.
	Members []Request
}

// Replicas returns the members.
func (c Cohort) Replicas() []Replica {
	replicas := make([]Replica, len(c.Members))
	for i, m := range c.Members {
		replicas[i] = m.Replica
	}
	return replicas
}

// Outcome has the effects of an event.
type Outcome struct {
	// Cohort is the answer to requests, nil for none. Changed says that its ID is new.
	Cohort  *Cohort
	Changed bool
	// Left are requests that the cohort leaves out. Their replicas ask again if they still wait.
	Left []Request
	// Why says why there is no cohort although replicas ask; empty otherwise.
	Why string
}

// State is the state of a lighthouse. Only one goroutine uses it.
type State struct {
	options Options
	// id and last are the ID and the members of the last cohort; 0 and none before the first.
	id   int64
	last []Replica
	// alive are the known replicas, by ID.
	alive map[string]*replica
	// formed is the last cohort, nil if another coordinator formed it.
	formed *Cohort
}

// replica is a known replica.
type replica struct {
	Replica
	heard time.Time
	// request is the request that the replica made at the time joined, nil if it does not ask.
	// answered is the newest call that a cohort has answered or left out.
	request  *Request
	joined   time.Time
	answered int64
}

// New returns a lighthouse that continues after the last cohort. An id of 0 means that there was no
// cohort. The members of the last cohort count as heard at the time heard.
func New(o Options, id int64, last []Replica, heard time.Time) *State {
	s := &State{options: o, id: id, last: slices.Clone(last), alive: map[string]*replica{}}
	for _, r := range last {
		s.alive[r.ID] = &replica{Replica: r, heard: heard}
	}
	return s
}

// Asks reports whether any replica asks for a cohort. Only then does the passing of time matter.
func (s *State) Asks() bool {
	for _, r := range s.alive {
		if r.request != nil {
			return true
		}
	}
	return false
}

// Step takes an event and returns its effects.
func (s *State) Step(now time.Time, ev Event) Outcome {
	switch ev := ev.(type) {
	case Heartbeat:
		s.hear(ev.Replica).heard = now
	case Asked:
		if q, again := s.ask(now, ev.Request); again {
			return Outcome{Cohort: q}
		}
	case Gone:
		for id, r := range s.alive {
			if r.Group == ev.Group {
				delete(s.alive, id)
			}
		}
	case Tick:
	}
	members, why := s.decide(now)
	if members == nil {
		return Outcome{Why: why}
	}
	return s.form(now, members)
}

// hear returns a replica, after adding it if it is new.
func (s *State) hear(of Replica) *replica {
	r := s.alive[of.ID]
	if r == nil {
		s.makeRoom(of.Group)
		r = &replica{}
		s.alive[of.ID] = r
	}
	r.Replica = of
	return r
}

// makeRoom forgets the replica of a group that was silent longest, if the group has too many.
func (s *State) makeRoom(group int) {
	known, silent := 0, ""
	for id, r := range s.alive {
		if r.Group != group {
			continue
		}
		if known++; silent == "" || r.heard.Before(s.alive[silent].heard) {
			silent = id
		}
	}
	if known >= MaxReplicas {
		delete(s.alive, silent)
	}
}

// ask notes a request. If it was answered, it returns the answer.
func (s *State) ask(now time.Time, q Request) (answer *Cohort, again bool) {
	r := s.hear(q.Replica)
	if !q.Again {
		r.heard = now
	}
	switch {
	case r.request != nil && r.request.Call == q.Call:
		return nil, false
	case q.Call < r.answered:
		return nil, true
	case q.Call == r.answered && !q.Again:
		if s.formed != nil && slices.ContainsFunc(s.formed.Members, func(m Request) bool { return m.ID == q.ID && m.Call == q.Call }) {
			return s.formed, true
		}
		return nil, true
	}
	r.request, r.joined = &q, now
	return nil, false
}

// decide returns the members of the next cohort, by ID, or why there is none yet. The reason is
// empty if no replica asks.
func (s *State) decide(now time.Time) (members []*replica, why string) {
	var asking, silent []*replica
	shrink, earliest := false, now
	for _, r := range s.alive {
		switch {
		case now.Sub(r.heard) >= s.options.HeartbeatTimeout:
		case r.request == nil:
			silent = append(silent, r)
		default:
			asking = append(asking, r)
			shrink = shrink || r.request.ShrinkOnly
			if r.joined.Before(earliest) {
				earliest = r.joined
			}
		}
	}
	if len(asking) == 0 {
		return nil, ""
	}
	slices.SortFunc(asking, func(a, b *replica) int { return strings.Compare(a.ID, b.ID) })
	members = asking
	if shrink && s.id > 0 {
		members = slices.DeleteFunc(slices.Clone(asking), func(r *replica) bool { return !s.wasMember(r.ID) })
	}
	switch healthy := len(asking) + len(silent); {
	case s.complete(asking):
	case len(asking) < s.options.MinReplicas:
		return nil, s.tooFew(asking)
	case len(asking) <= healthy/2:
		return nil, minority(asking, silent)
	case len(silent) > 0 && now.Sub(earliest) < s.options.JoinTimeout:
		return nil, s.stragglers(silent)
	}
	if len(members) == 0 {
		return nil, "no quorum: no member of the last one is left, and " + named(asking) + " wants no new ones"
	}
	size := 0
	for _, r := range members {
		size += len(r.request.Member) + memberOverhead
	}
	if size > MaxMembers {
		return nil, fmt.Sprintf("no quorum: its members tell each other %d bytes, %d at most", size, MaxMembers)
	}
	return members, ""
}

// memberOverhead is the size of a member beyond its content.
const memberOverhead = 8

// complete reports whether all members of the last cohort ask.
func (s *State) complete(asking []*replica) bool {
	for _, m := range s.last {
		if !slices.ContainsFunc(asking, func(r *replica) bool { return r.ID == m.ID }) {
			return false
		}
	}
	return len(s.last) > 0
}

func (s *State) wasMember(id string) bool {
	return slices.ContainsFunc(s.last, func(r Replica) bool { return r.ID == id })
}

// form makes a cohort, which ends all requests. A replica that the cohort leaves out may ask again.
func (s *State) form(now time.Time, members []*replica) (o Outcome) {
	q := Cohort{Created: now}
	failed := false
	for _, r := range members {
		q.Members = append(q.Members, *r.request)
		failed = failed || r.request.CommitFailures > 0
	}
	for _, r := range s.alive {
		if r.request == nil {
			continue
		}
		if !slices.Contains(members, r) {
			o.Left = append(o.Left, *r.request)
		}
		r.request, r.answered = nil, r.request.Call
	}
	slices.SortFunc(o.Left, func(a, b Request) int { return strings.Compare(a.ID, b.ID) })
	replicas := q.Replicas()
	if s.id == 0 || failed || !slices.EqualFunc(replicas, s.last, func(a, b Replica) bool { return a.ID == b.ID }) {
		s.id++
		o.Changed = true
	}
	q.ID, s.last, s.formed = s.id, replicas, &q
	o.Cohort = &q
	return o
}
