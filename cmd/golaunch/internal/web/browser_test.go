package web

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// pictures is the directory in which TestPages saves pictures of the pages, for people to judge.
var pictures = flag.String("pictures", "", "directory for pictures of the pages; none when empty")

var errNoBrowser = errors.New("install chromium: no browser is here")

// atEnd has the functions to call when all tests are over, the last first.
var atEnd []func()

// TestMain runs the tests apart from others: a browser aborts its requests when its machine's
// network interfaces change, and other tests change them.
func TestMain(m *testing.M) {
	done := suite.Apart()
	code := m.Run()
	for _, do := range slices.Backward(atEnd) {
		do()
	}
	done()
	os.Exit(code)
}

// chromium returns one browser for all tests, since a start takes long; each test has its own
// profile in it.
var chromium = sync.OnceValues(func() (context.Context, error) {
	path := ""
	for _, name := range []string{"google-chrome", "chromium-browser", "chromium"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
		}
	}
	if path == "" {
		return nil, errNoBrowser
	}
	profile, err := os.MkdirTemp("", "golaunch-browser-")
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(profile))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, gone := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	atEnd = append(atEnd, func() { _ = os.RemoveAll(profile) }, gone, cancel, func() {
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_ = chromedp.Cancel(limited) // the browser is then killed
	})
	return ctx, chromedp.Do(ctx)
})

// browser is a window of a headless Chromium with its own profile. It ends with the test.
func browser(t *testing.T) context.Context {
	t.Helper()
	shared, err := chromium()
	switch {
	case errors.Is(err, errNoBrowser):
		suite.Missing(t, "%v", err)
	case err != nil:
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(shared, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// tab is a page of a browser. It fails the test if the page writes to its console or requests
// anything from another site.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu    sync.Mutex
	wrong []string
}

// newTab opens a tab that may load all addresses that begin with one of the given texts.
func newTab(t *testing.T, b context.Context, from ...string) *tab {
	t.Helper()
	ctx, cancel := context.WithTimeout(b, 5*limit)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	p := &tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, func(event any) { p.hear(event, from) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, w := range p.complaints() {
			t.Errorf("the browser complains: %s", w)
		}
		_ = chromedp.Cancel(ctx)
		cancel()
	})
	p.do(
		command(network.Enable, network.EnableParams{}), command(log.Enable, cdp.Empty{}), command(runtime.Enable, cdp.Empty{}),
	)
	return p
}

// command is a step that sends a command of the protocol.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

func (p *tab) hear(event any, from []string) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.complain("%s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
	case *runtime.EventConsoleAPICalled:
		for _, a := range e.Args {
			p.complain("console: %s %s", a.Value, a.Description)
		}
	case *log.EventEntryAdded:
		p.complain("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
	case *network.EventRequestWillBeSent:
		for _, prefix := range append(from, "data:") {
			if strings.HasPrefix(e.Request.URL, prefix) {
				return
			}
		}
		p.complain("it asks for %s", e.Request.URL)
	}
}

func (p *tab) complain(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong = append(p.wrong, fmt.Sprintf(format, args...))
}

// complaints returns the complaints since the last call.
func (p *tab) complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.wrong
	p.wrong = nil
	return all
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatalf("%v; complaints: %q", err, p.complaints())
	}
}

// until waits until an expression is true. It evaluates the expression whenever the page is
// painted. The page may be replaced meanwhile.
func (p *tab) until(expression string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	for {
		_, err := chromedp.Run(ctx, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(0)))
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			p.t.Fatalf("%s is not so: %v; complaints: %q\n%s", expression, err, p.complaints(), eval[string](p, `document.body.innerText.slice(0, 1500)`))
		}
	}
}

// eval is the value of an expression.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatalf("%s: %v; complaints: %q", expression, err, p.complaints())
	}
	return v
}

// does evaluates an expression without a value.
func (p *tab) does(statement string) {
	p.t.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](statement))
}

// size sets the size of the window.
func (p *tab) size(width, height int64) { p.do(chromedp.EmulateViewport(width, height)) }

// enter opens the newest link, and waits for the page of the cluster.
func (p *tab) enter(s *site) {
	p.t.Helper()
	p.do(chromedp.Navigate(<-s.links))
	p.until(`document.querySelector('h1')?.textContent === 'Cluster' && document.querySelectorAll('tbody tr').length > 3`)
}

// shoot saves a picture of the page if pictures are requested.
func (p *tab) shoot(name string) {
	p.t.Helper()
	if *pictures == "" {
		return
	}
	picture, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(*pictures, name+".png"), picture, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}
