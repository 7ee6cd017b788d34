package web

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/alert"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
)

// feed holds the newest state. The model runs only while there is a watcher.
type feed struct {
	opts Options

	mu    sync.Mutex
	state *view.State
	// picture is the state with its alerts.
	picture *alert.Picture
	// good is when the state was last free of trouble; began is when the first watcher began.
	good, began time.Time
	pages       map[query]parts
	heats       map[query]cachedHeat
	watchers    int
	// cancel ends the model's run, after which ended is closed. rest ends the run a while after the
	// last watcher has left.
	cancel context.CancelFunc
	ended  chan struct{}
	rest   *time.Timer
	closed bool
}

func newFeed(o Options) *feed {
	return &feed{opts: o, pages: map[query]parts{}, heats: map[query]cachedHeat{}}
}

// watch runs the model until leave was called as often as watch, and a little longer.
func (f *feed) watch() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers++
	if f.rest != nil {
		f.rest.Stop()
	}
	if f.cancel != nil || f.closed {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel, f.ended, f.began = cancel, make(chan struct{}), time.Now()
	go func(ended chan struct{}) {
		defer close(ended)
		f.opts.Model.Run(ctx)
	}(f.ended)
}

func (f *feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watchers--; f.watchers == 0 {
		f.rest = time.AfterFunc(linger, f.idle)
	}
}

func (f *feed) idle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watchers == 0 && f.cancel != nil {
		f.cancel()
		<-f.ended
		f.cancel = nil
	}
}

// close ends the model's run for good.
func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed = true; f.cancel != nil {
		f.cancel()
		<-f.ended
		f.cancel = nil
	}
}

// page returns the parts that a page shows now. Equal pages share them.
func (f *feed) page(q query) parts {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == nil || time.Since(f.state.At) >= f.opts.Every*9/10 {
		f.state = f.opts.Model.State()
		f.picture = alert.NewPicture(f.state)
		clear(f.pages)
		if f.state.Trouble == "" {
			f.good = f.state.At
		}
	}
	if f.pages[q] == nil {
		p := newParts(q, f.picture)
		p.add("head", f.head())
		f.addHeat(p, q)
		f.pages[q] = p
	}
	return f.pages[q]
}

// cachedHeat is a heat map of a number of ranks, which was made when a slot ended.
type cachedHeat struct {
	last  int64
	ranks int
	body  json.RawMessage
}

// addHeat adds the heat map of a job's page. The map is made once a slot, not each second.
func (f *feed) addHeat(p parts, q query) {
	j := f.state.Job(q.name)
	if q.page != "job" || j == nil {
		return
	}
	_, last := slots(j.Ranks)
	if w := f.heats[q]; w.body == nil || w.last != last || w.ranks != len(j.Ranks) {
		if len(f.heats) >= maxStreams {
			clear(f.heats)
		}
		p.add("heat", newHeat(j.Ranks, q.heat))
		f.heats[q] = cachedHeat{last, len(j.Ranks), p["heat"]}
	}
	p["heat"] = f.heats[q].body
}

// head is the part that all pages show.
func (f *feed) head() any {
	s := f.state
	age := 0.0
	if s.Trouble != "" {
		since := s.Answered // trouble is known only some time after it began
		if since.IsZero() {
			since = f.began
		}
		age = s.At.Sub(since).Seconds()
	}
	return header{
		At: when(s.At), Source: text(s.Source, maxName), Trouble: text(s.Trouble, maxReason), Known: !f.good.IsZero(), Age: real(age),
		Version: text(s.Version, maxName), Since: when(s.Since), Coordinators: s.Coordinators, Silent: s.Silent,
		Stop: f.opts.AllowStop, Stacks: f.opts.Stacks != nil, Own: f.opts.Version,
	}
}

type header struct {
	At      moment `json:"at"`
	Source  string `json:"source"`
	Trouble string `json:"trouble"`
	// Known is true if the state was once free of trouble. Age is the age of the state in seconds
	// while there is trouble.
	Known        bool     `json:"known"`
	Age          real     `json:"age"`
	Version      string   `json:"version"`
	Since        moment   `json:"since"`
	Coordinators []string `json:"coordinators"`
	Silent       []string `json:"silent"`
	Stop         bool     `json:"stop"`
	Stacks       bool     `json:"stacks"`
	// Own is the version of the golaunch that serves the page.
	Own string `json:"own"`
}
