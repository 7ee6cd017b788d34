// Package top is the terminal monitor of jobs, nodes and ranks.
//
// It lists jobs, nodes and ranks, the worst first, each with the reason. A heat map shows their
// past. Below it are the coordinator's decisions and the ranks' output. A [Picture] is a state of
// the cluster with its alerts. [Print] writes it once, as text. [Run] shows it in a terminal. Keys
// and new pictures change a screen, which is a value, and a frame is a function of the screen. Only
// the visible rows are made.
package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
)

// Options say what [Run] shows, and where.
type Options struct {
	// The caller keeps Model up to date from Sources, which may change.
	Model   *view.Model
	Sources func() []view.Source
	// Job is the only job that is shown; empty for all.
	Job string
	// Stacks returns the stacks of a job's ranks as text; nil if stacks are not available.
	Stacks func(ctx context.Context, job string) (string, error)
	// Input and Output are a terminal, and Environ its variables, as of os.Environ.
	Input   io.Reader
	Output  io.Writer
	Environ []string
}

// perFrame is the least time between two frames, unless a key asks for one.
const perFrame = 250 * time.Millisecond

// Run shows the model until the user quits or ctx ends. If ctx ended, Run returns its cause. Run
// restores the terminal.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := newApp(ctx, o)
	p := tea.NewProgram(a, tea.WithContext(ctx), tea.WithInput(o.Input), tea.WithOutput(o.Output), tea.WithEnvironment(o.Environ),
		tea.WithoutSignalHandler())
	go a.pump(p.Send)
	_, err := p.Run()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return fmt.Errorf("cannot use the terminal: %w; golaunch top --once needs none", err)
	}
	return nil
}

// app is a screen as a program of bubbletea, with its background work.
type app struct {
	*screen
	Options
	ctx  context.Context
	news chan struct{}

	follower *follower
	prober   *prober
	// endLog and endProbe end the background work.
	endLog, endProbe context.CancelFunc
}

// refreshed asks for a new frame, with a new picture if learnt is true.
type refreshed struct{ learnt bool }

// asked is the answer to a question about stacks.
type asked stacks

func newApp(ctx context.Context, o Options) *app {
	look := Surroundings(o.Environ)
	a := &app{Options: o, ctx: ctx, news: make(chan struct{}, 1), endLog: func() {}, endProbe: func() {}}
	a.screen = newScreen(everything, look.themes())
	a.ascii = look.ASCII
	a.clock = time.Now()
	a.show(NewPicture(o.Model.State()))
	a.begin()
	return a
}

// begin opens the only job, if there is just one.
func (a *app) begin() {
	if a.Job != "" {
		a.trail = []spot{{at: place{job: a.Job, rank: noRank}}}
		a.settle()
		return
	}
	if jobs := a.picture.Jobs; len(jobs) > 0 && !jobs[0].Over() && (len(jobs) == 1 || jobs[1].Over()) {
		a.open(place{job: jobs[0].ID, rank: noRank})
	}
}

// tell reports news to the loop that draws.
func (a *app) tell() {
	select {
	case a.news <- struct{}{}:
	default: // the news is already in the channel
	}
}

// pump asks for a frame when there is news, but not too often. Without news, it asks each second,
// because the age of the picture changes.
func (a *app) pump(send func(tea.Msg)) {
	changed := a.Model.Changed()
	for a.ctx.Err() == nil {
		rest := time.After(perFrame)
		select {
		case <-changed:
			changed = a.Model.Changed() // before the picture is made, so that no later change is missed
			send(refreshed{true})
		case <-a.news:
			send(refreshed{false})
		case <-time.After(staleAfter):
			send(refreshed{false})
		case <-a.ctx.Done():
		}
		select {
		case <-rest:
		case <-a.ctx.Done():
		}
	}
}

// Init does nothing.
func (a *app) Init() tea.Cmd { return nil }

// Update handles an event.
func (a *app) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	a.clock = time.Now()
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		a.width, a.height = msg.Width, msg.Height
	case refreshed:
		a.refresh(msg.learnt)
	case asked:
		a.stacks = stacks(msg)
	case tea.PasteMsg:
		for _, r := range msg.Content {
			if a.typing {
				a.press(string(r))
			}
		}
	case tea.KeyPressMsg:
		return a, a.do(a.press(msg.String()))
	}
	return a, nil
}

// View is the frame.
func (a *app) View() tea.View {
	v := tea.NewView(a.frame())
	v.AltScreen = true
	return v
}

func (a *app) refresh(learnt bool) {
	if learnt {
		a.show(NewPicture(a.Model.State()))
	}
	if a.follower != nil {
		a.log = a.follower.seen()
		a.nextAttempt()
	}
	if a.prober != nil {
		a.probe = a.prober.seen()
	}
}

// errNoStacks is the error if Stacks is nil.
var errNoStacks = errors.New("stacks are not available here; when a job hangs or fails, its bundle has them")
