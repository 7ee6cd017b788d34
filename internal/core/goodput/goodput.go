// Package goodput keeps a job's ledger: how its ranks spent their time, and how much time each
// cause and node cost.
//
// [Ledger.Take] tells a ledger when units of ranks begin to use their time differently. The ledger
// adds up rank-time, which is GPU-time for ranks with a GPU. It reads no clock and rounds nothing
// except the times that it is given. So the same changes always give the same report, and the uses
// of the time add up to the whole. Its size does not depend on how long the job runs.
//
// Goodput is the training time without the part that had to be repeated, as a share of all time
// since the job first got its nodes. Google's ML productivity goodput (2024) calls this the runtime
// goodput.
package goodput

import (
	"slices"
	"time"
)

// Use is what ranks spend their time on.
type Use int

// Over means that no time is used: the ranks have ended, or are not placed.
const (
	Over Use = iota
	// Starting lasts from the decision to start until all ranks of the unit run.
	Starting
	// Training lasts while all ranks run.
	Training
	// Stopping lasts from the first failure, or the last success, until no process of the unit
	// lives.
	Stopping
	// Backoff is the wait before a restart.
	Backoff
	// Waiting is the wait for nodes to replace lost ones.
	Waiting
	// Importing is the part of Starting in which ranks wait until a fork server has imported
	// modules for them.
	Importing
	uses
)

// String returns the use in one word; empty for Over.
func (u Use) String() string {
	return [...]string{"", "starting", "training", "stopping", "backoff", "waiting", "importing"}[max(0, min(u, uses-1))]
}

// Change says how the ranks of a unit use their time from now on, or which step they have reached.
type Change struct {
	Unit, Ranks int
	To          Use
	// Step, if not 0, is the step that the job, which is one unit, reached Ago before. The other
	// fields are then unset.
	Step int64
	Ago  time.Duration
	// Saved says that the checkpoint which began Ago before is complete. The other fields are then
	// unset.
	Saved bool
	// Imported is how long the unit was Importing during the time of Starting that ends with this
	// change.
	Imported time.Duration
	// Cause is why the unit was stopped and Node is the node to blame. They are set only for a
	// change to Backoff.
	Cause, Node string
}

// Ledger adds up the time of a job's ranks. The zero Ledger is for a job without nodes.
type Ledger struct {
	// now is the newest time that the ledger got. It never goes back, even if the clock does. All
	// times here are in milliseconds.
	now   int64
	units map[int]span
	used  [uses]int64
	// accounts has the costs of causes, at most maxAccounts, in the order in which the causes
	// arose. others is the cost of the rest.
	accounts []*account
	others   account
	// steps says after how much training the job reached which steps. lost is the training time
	// that was in vain. back is the account to charge if the next step shows that the job went back
	// to an earlier step.
	steps []sample
	lost  int64
	back  *account
	// saved is the training time, without lost time, until the newest complete checkpoint began.
	// saves says that there is such a checkpoint. ranks is the number of ranks of the last change.
	saved, ranks int64
	saves        bool
}

const maxAccounts = 32

// span is how a unit uses its time now, and since when. blame is the account charged until the unit
// trains again.
type span struct {
	use          Use
	ranks, since int64
	blame        *account
}

func (s span) until(now int64) int64 { return s.ranks * (now - s.since) }

// account has the cost of a cause on a node. open counts the units that the cause delays.
type account struct {
	cause, node string
	times, open int
	cost, lost  int64
}

// Take records what changed at a time.
func (l *Ledger) Take(at time.Time, changes []Change) {
	l.now = max(l.now, at.UnixMilli())
	for _, c := range changes {
		switch {
		case c.Step > 0:
			l.step(l.now-c.Ago.Milliseconds(), c.Step)
		case c.Saved:
			l.saved, l.saves = l.trainedUntil(l.now-c.Ago.Milliseconds()), true
		default:
			l.change(l.now, c)
		}
	}
}

func (l *Ledger) change(now int64, c Change) {
	u := l.units[c.Unit]
	l.ranks = int64(c.Ranks)
	if u.use == c.To && u.ranks == int64(c.Ranks) {
		return
	}
	if c.To == Backoff {
		u.blame = l.account(c.Cause, c.Node)
		l.back = u.blame
		if u.blame.open++; u.blame.open == 1 {
			u.blame.times++
		}
	}
	spent := u.until(now)
	l.used[u.use] += spent
	if u.use == Starting {
		imported := min(spent, u.ranks*max(0, c.Imported.Milliseconds()))
		l.used[Starting] -= imported
		l.used[Importing] += imported
	}
	if u.blame != nil && u.use != Training {
		u.blame.cost += spent
		if c.To == Training || c.To == Stopping || c.To == Over {
			u.blame.open--
			u.blame = nil
		}
	}
	if c.To == Over {
		delete(l.units, c.Unit)
		return
	}
	if l.units == nil {
		l.units = map[int]span{}
	}
	l.units[c.Unit] = span{c.To, int64(c.Ranks), now, u.blame}
	if c.To == Backoff && l.saves {
		l.loseSince(l.saved, u.blame)
	}
}

// account returns the account of a cause and node. A new account may replace the account with the
// lowest cost.
func (l *Ledger) account(cause, node string) *account {
	least := -1
	for i, a := range l.accounts {
		if a.cause == cause && a.node == node {
			return a
		}
		if a.open == 0 && (least < 0 || a.cost+a.lost < l.accounts[least].cost+l.accounts[least].lost) {
			least = i
		}
	}
	if len(l.accounts) == maxAccounts {
		if least < 0 {
			return &l.others
		}
		l.fold(l.accounts[least])
		l.accounts = slices.Delete(l.accounts, least, least+1)
	}
	a := &account{cause: cause, node: node}
	l.accounts = append(l.accounts, a)
	return a
}

// fold adds an account to the others.
func (l *Ledger) fold(a *account) {
	l.others.times += a.times
	l.others.cost += a.cost
	l.others.lost += a.lost
	if l.back == a {
		l.back = &l.others
	}
}
