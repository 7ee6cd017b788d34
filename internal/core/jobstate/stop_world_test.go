package jobstate

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// stopWorlds is above the numbers of the worlds of TestWorld.
const stopWorlds = 1_000_000

// TestRandomStops stops a thousand jobs in virtual time. These jobs save at random times. In all,
// they lose little more work than with an oracle that knows when they will save and for how long.
// Programs that catch the signal and end without a checkpoint are counted apart, because the job
// cannot know which these are.
func TestRandomStops(t *testing.T) {
	var lost, least, savedLost, savedLeast, heedless, heedlessAtOnce time.Duration
	ways := map[string]int{}
	for seed := range uint64(1000) {
		w := newStopWorld(stopWorlds + seed)
		if err := w.run(); err != nil {
			t.Fatalf("%v; see go test -run TestWorld -v -world-seed=%d", err, stopWorlds+seed)
		}
		if w.heedless {
			if w.afterSave && w.promised() {
				heedless, heedlessAtOnce = heedless+w.lost(), heedlessAtOnce-w.known().began
				ways["heedless, with a save to come"]++
			}
			continue
		}
		lost, least = lost+w.lost(), least+w.oracle()
		if w.way() == "after a save" {
			savedLost, savedLeast = savedLost+w.lost(), savedLeast+w.oracle()
		}
		ways[w.way()]++
	}
	t.Logf("%v lost, %v at least: %.3f times as much, and %.3f after a save; %v", lost, least,
		lost.Seconds()/least.Seconds(), savedLost.Seconds()/savedLeast.Seconds(), ways)
	if float64(lost) > 1.1*float64(least) || float64(savedLost) > 1.1*float64(savedLeast) {
		t.Errorf("%v of work is lost, and an oracle loses %v; after a save, %v and %v", lost, least, savedLost, savedLeast)
	}
	t.Logf("heedless programs with a save to come lose %v, and %v if they get the signal at once", heedless, heedlessAtOnce)
	if 2*heedless > heedlessAtOnce {
		t.Error("waiting for their saves does not help heedless programs")
	}
	for way, few := range map[string]int{"after a save": 50, "by the signal": 50, "nothing saved": 50, "heedless, with a save to come": 10} {
		if ways[way] < few {
			t.Errorf("%d stops %s: the worlds are too tame", ways[way], way)
		}
	}
}

// stopWorld is a job that saves, and whose end is announced at the time zero. Times are relative to
// the announcement.
type stopWorld struct {
	rng   *rand.Rand
	state *State
	now   time.Duration
	queue []timedEvent
	trace []string
	nodes int
	// shared says that one node proves a save for all.
	shared bool
	// within is the time until the announced end, and grace the time after that.
	within, grace time.Duration
	// afterSave and loose are as in Cancel; drain says that a node leaves instead.
	afterSave, loose, drain bool
	// catching nodes have ranks that catch the signal. These ranks check for the signal in every
	// step, and then save, which takes the time signalled. If fragile is set, they end without any
	// save if a save is in flight. If heedless is set, they always end without any save.
	catching        int
	fragile         bool
	heedless        bool
	step, signalled time.Duration
	// saves are the saves of the program, in order, as if it were never stopped.
	saves []trueSave
	// stopped is when the ranks were first ordered to stop, and killed when they are killed; both
	// are negative before that.
	stopped, killed time.Duration
	// own is the save for the signal; nil if there is none.
	own *trueSave
}

type timedEvent struct {
	at    time.Duration
	event func() job.Event // it returns nil if nothing happens after all
}

// trueSave is a checkpoint on the disk. proved is when the coordinator learns of its end. A partial
// checkpoint is never complete.
type trueSave struct {
	began, ended, proved time.Duration
	partial              bool
	parts                []savePart
}

// savePart is a node's part of a checkpoint, with the times at which the node reports it.
type savePart struct{ ended, seen, proved time.Duration }

// Bounds of the time in which agents see and prove a save, once its end is announced.
const (
	seesIn   = time.Second
	provesIn = 2 * time.Second
)

func newStopWorld(seed uint64) *stopWorld {
	w := &stopWorld{rng: rand.New(rand.NewPCG(seed, 2)), stopped: -1, killed: -1}
	w.nodes, w.shared = 1+w.rng.IntN(3), w.rng.IntN(2) == 0
	w.within, w.grace = w.between(5*time.Second, time.Minute), w.between(0, 30*time.Second)
	w.afterSave, w.loose, w.drain = w.rng.IntN(2) == 0, w.rng.IntN(4) == 0, w.rng.IntN(3) == 0
	w.loose, w.afterSave = w.loose && !w.drain, w.afterSave && !w.drain
	w.step = w.between(100*time.Millisecond, 3*time.Second)
	switch w.rng.IntN(3) {
	case 0:
		w.catching = w.nodes
	case 1:
		w.catching = w.rng.IntN(w.nodes)
	}
	w.heedless = w.catching == w.nodes && w.rng.IntN(3) == 0
	took := w.between(500*time.Millisecond, 20*time.Second)
	every := took + w.between(20*time.Second, 10*time.Minute)
	if w.rng.IntN(2) == 0 {
		every = took + w.between(20*time.Second, time.Minute)
	}
	if w.heedless {
		took, every = min(took, 3*time.Second), w.between(15*time.Second, 30*time.Second)
	}
	w.signalled, w.fragile = w.about(took), w.rng.IntN(2) == 0
	// The end is announced at any time between saves, but often while a save is in flight.
	at := -2*every - w.between(0, every)
	if w.rng.IntN(3) == 0 {
		at = -2*every - w.between(0, took)
	}
	for at < w.within+w.grace {
		s := w.save(at, w.about(took))
		w.saves = append(w.saves, s)
		at = max(s.ended, at+w.about(every))
	}
	w.state = New(job.Spec{ID: "j", Request: placement.Request{MinNodes: w.nodes, MaxNodes: w.nodes, PerNode: []int{1}}, MaxRestarts: 3, Grace: w.grace})
	return w
}

func (w *stopWorld) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rng.Int64N(int64(most-least)+1))
}

// save makes a checkpoint. On a file system that all nodes share, each node sees the whole
// checkpoint.
func (w *stopWorld) save(at, took time.Duration) trueSave {
	s := trueSave{began: at, ended: at + took, partial: at+took > 0 && w.rng.IntN(8) == 0}
	for i := range w.nodes {
		p := savePart{ended: s.ended, seen: at + w.between(0, min(seesIn, took/2))}
		if i > 0 && !w.shared {
			p.ended -= w.between(0, took/3)
		}
		p.proved = p.ended + w.between(0, provesIn)
		if s.parts = append(s.parts, p); s.proved == 0 || (w.shared && !s.partial) == (p.proved < s.proved) {
			s.proved = p.proved
		}
	}
	return s
}

// about returns a time that differs from d by at most a fifth.
func (w *stopWorld) about(d time.Duration) time.Duration { return w.between(d*4/5, d*6/5) }

func (w *stopWorld) at() time.Time { return stopEpoch.Add(w.now) }

var stopEpoch = time.Unix(1_700_000_000, 0)

func (w *stopWorld) later(at time.Duration, event func() job.Event) {
	i := sort.Search(len(w.queue), func(i int) bool { return w.queue[i].at > at })
	w.queue = slices.Insert(w.queue, i, timedEvent{at, event})
}

func (w *stopWorld) run() error {
	w.now = w.saves[0].began - time.Second
	if err := w.start(); err != nil {
		return err
	}
	for _, s := range w.saves {
		w.plan(s)
	}
	w.later(0, w.announce)
	if w.loose {
		w.later(w.within, func() job.Event { return job.Cancel{Code: 143, Why: "the scheduler ends it"} })
	}
	for len(w.queue) > 0 {
		next := w.queue[0]
		w.queue = w.queue[1:]
		w.now = next.at
		if ev := next.event(); ev != nil {
			if err := w.take(ev); err != nil {
				return err
			}
		}
	}
	return w.check()
}

func (w *stopWorld) announce() job.Event {
	if w.drain {
		return job.Draining{Node: "n0", Within: w.within, Why: "maintenance", At: w.at()}
	}
	return job.Cancel{Code: 143, Why: "stopped", Within: w.within, AfterSave: w.afterSave, Loose: w.loose, At: w.at()}
}

// start brings the job to the point where all ranks run.
func (w *stopWorld) start() error {
	for i := range w.nodes {
		if err := w.take(job.Joined{Node: placement.Node{Name: fmt.Sprint("n", i), Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)})}}); err != nil {
			return err
		}
	}
	if w.state.Phase() != job.Running || w.state.progress.units[0].starting > 0 {
		return fmt.Errorf("it does not start: %s", w.state.Summary().Waits)
	}
	return nil
}

// plan makes each node report a save. The save ends only if the ranks live for that long.
func (w *stopWorld) plan(s trueSave) {
	for i, part := range s.parts {
		ev := job.Saved{Node: fmt.Sprint("n", i), Path: "/c/" + s.began.String(), Shared: w.shared}
		w.later(part.seen, func() job.Event {
			if w.stopped >= 0 && w.stopped < s.began {
				return nil
			}
			ev.State, ev.At, ev.Ago = job.SaveBegan, w.at(), w.now-s.began
			return ev
		})
		w.later(part.proved, func() job.Event {
			ev.State, ev.At, ev.Ago, ev.Took = job.SaveComplete, w.at(), w.now-part.ended, part.ended-s.began
			switch {
			case w.stopped >= 0 && w.stopped < s.began:
				return nil
			case s.partial || w.endsAt() >= 0 && w.endsAt() < part.ended:
				ev.State = job.SavePartial
			}
			return ev
		})
	}
}

// endsAt is when the ranks end after the order to stop; negative before the order.
func (w *stopWorld) endsAt() time.Duration {
	switch {
	case w.stopped < 0:
		return -1
	case w.own != nil:
		return w.own.ended
	case w.heeds() && !w.fragile:
		return w.killed
	}
	return w.stopped
}

// heeds reports whether the program saves for the signal.
func (w *stopWorld) heeds() bool { return w.catching == w.nodes && !w.heedless }

// known returns the newest save that the job knows when its end is announced.
func (w *stopWorld) known() (last trueSave) {
	for _, s := range w.saves {
		if s.proved <= 0 {
			last = s
		}
	}
	return last
}

// promised reports whether the rhythm of the saves promises another one that is complete before the
// ranks need the rest of their time to save for the signal.
func (w *stopWorld) promised() bool {
	last := w.known()
	i := slices.IndexFunc(w.saves, func(s trueSave) bool { return s.began == last.began })
	if i < 1 {
		return false
	}
	reserve := 2*(last.ended-last.began) + signalMargin
	return last.ended+last.began-w.saves[i-1].began+2*reserve <= w.within
}

func (w *stopWorld) take(ev job.Event) error {
	actions, reason := w.state.Step(ev)
	w.trace = append(w.trace, fmt.Sprintf("%v: %v = %s %v", w.now, ev, reason, actions))
	for _, a := range actions {
		if err := w.perform(a); err != nil {
			return err
		}
	}
	return nil
}

func (w *stopWorld) perform(a job.Action) error {
	switch a := a.(type) {
	case job.Prepare:
		return w.take(job.Prepared{Node: a.Node, Unit: a.Unit, Attempt: a.Attempt, Port: 29500})
	case job.Reach:
		return w.take(job.Reached{Node: a.Node, Seq: a.Seq})
	case job.Start:
		if a.Attempt == 0 {
			return w.take(job.Started{Node: a.Group.Node.Name, Unit: a.Unit, Attempt: a.Attempt})
		}
	case job.Alarm:
		if a.For > 0 {
			w.later(w.now+a.For, func() job.Event { return job.TimedOut{Kind: a.Kind, Seq: a.Seq} })
		}
	case job.Notice:
		var node int
		if _, err := fmt.Sscanf(a.Node, "n%d", &node); err != nil {
			return err
		}
		if node < w.catching {
			w.later(w.now+seesIn, func() job.Event { return job.Catching{Node: a.Node, Unit: a.Unit, Attempt: a.Attempt} })
		}
	case job.Stop:
		w.stop(a)
	}
	return nil
}

// stop makes the ranks save and end, if they can.
func (w *stopWorld) stop(a job.Stop) {
	if w.stopped < 0 {
		w.stopped = w.now
		w.killed = w.now + a.Grace
		if a.Alarm != 0 {
			w.killed = max(w.now, w.within) + a.Grace
		}
		if w.loose {
			w.killed = min(w.killed, w.within+time.Second) // the scheduler ends them
		}
		free := w.now // when no save is in flight any more
		for _, s := range w.saves {
			if s.began <= w.now && s.ended > w.now {
				free = s.ended
			}
		}
		if end := free + w.step + w.signalled; w.heeds() && end <= w.killed && (free == w.now || !w.fragile) {
			w.own = &trueSave{began: free + w.step, ended: end}
		}
	}
	end := w.endsAt()
	if s := w.own; s != nil {
		w.later(end, func() job.Event {
			return job.Saved{Node: a.Node, State: job.SaveComplete, Path: "/c/own", Shared: w.shared, At: w.at(), Took: s.ended - s.began}
		})
	}
	w.later(max(end, w.now)+provesIn, func() job.Event { return job.Stopped{Node: a.Node, Unit: a.Unit, Attempt: a.Attempt} })
}

// landed returns the newest save that is complete when the ranks have ended.
func (w *stopWorld) landed() (last trueSave) {
	for _, s := range w.saves {
		if s.ended <= w.endsAt() && s.began <= w.stopped && !s.partial {
			last = s
		}
	}
	if w.own != nil {
		return *w.own
	}
	return last
}

// lost is the unsaved work, from the beginning of the newest save. It counts up to the announcement
// or, if that save ended after the announcement, up to the stop. Work that the ranks do after the
// announcement without saving it does not count as lost.
func (w *stopWorld) lost() time.Duration {
	s := w.landed()
	switch {
	case w.own != nil:
		return 0
	case s.ended >= 0:
		return w.stopped - s.began
	}
	return -s.began
}

// oracle is the least possible loss of work if all saves are known in advance. The oracle, like the
// job, learns of the end of a save late, and disturbs no save.
func (w *stopWorld) oracle() time.Duration {
	var least time.Duration
	limit := w.within + w.grace
	if w.loose {
		limit = w.within
	}
	for _, s := range w.saves {
		switch {
		case s.partial || s.began > w.within:
		case s.ended < 0:
			least = -s.began
		case s.ended >= 0 && s.ended <= w.within, s.ended >= 0 && s.ended <= limit && w.heeds() && !w.fragile:
			least = min(least, min(s.proved, w.within)-s.began)
		}
	}
	if free := max(w.busy(), seesIn); w.heeds() && free <= w.within && free+w.step+w.signalled <= limit {
		return 0
	}
	return least
}

// busy is the end of a save that began before the job knew which ranks catch the signal.
func (w *stopWorld) busy() (until time.Duration) {
	for _, s := range w.saves {
		if s.began < max(until, seesIn) && s.proved > seesIn {
			until = s.proved
		}
	}
	return until
}

func (w *stopWorld) way() string {
	switch s := w.landed(); {
	case w.own != nil:
		return "by the signal"
	case s.ended >= 0:
		return "after a save"
	}
	return "nothing saved"
}

// check checks the end of one job. Saves differ in length, so it allows for half a save.
func (w *stopWorld) check() error {
	err := w.judge()
	if err != nil {
		for _, line := range w.trace {
			err = fmt.Errorf("%w\n%s", err, line)
		}
		err = fmt.Errorf("%w\n%+v", err, w.saves)
	}
	return err
}

func (w *stopWorld) judge() error {
	took := w.saves[0].ended - w.saves[0].began
	limit := time.Duration(1.1*float64(w.oracle())) + took/2 + time.Second
	saved := w.state.Saves()
	switch {
	case w.stopped < 0:
		return fmt.Errorf("it is never stopped")
	case w.stopped > w.within:
		return fmt.Errorf("it is stopped %v after its time is over", w.stopped-w.within)
	case w.killed > w.within+w.grace+time.Second:
		return fmt.Errorf("it is killed %v after its time is over", w.killed-w.within)
	case w.afterSave && w.catching == w.nodes && !w.promised() && w.stopped > max(w.busy(), seesIn):
		return fmt.Errorf("it is stopped after %v", w.stopped)
	case w.lost() > limit && !w.heedless:
		return fmt.Errorf("it loses %v, and an oracle %v", w.lost(), w.oracle())
	case w.drain != (w.state.Phase() != job.Finished):
		return fmt.Errorf("it ends while %s", w.state.Summary().Waits)
	case !w.drain && saved.AfterNotice != (w.landed().ended >= 0):
		return fmt.Errorf("saved after the notice: %v, and %+v has landed", saved.AfterNotice, w.landed())
	case !w.drain && w.result().Code != 143:
		return fmt.Errorf("its code is %d", w.result().Code)
	}
	return nil
}

func (w *stopWorld) result() report.Result {
	r, _ := w.state.Result()
	return r
}
