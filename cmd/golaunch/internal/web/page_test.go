package web

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
)

// pages are those of the simulated cluster, with what is seen when all is there.
var pages = []struct{ at, there string }{
	{"#/", `document.querySelectorAll('main tbody tr[tabindex]').length > 3`},
	{"#/job/llama-70b", `document.querySelectorAll('.log > div').length > 5 && document.querySelectorAll('main tbody tr[tabindex]').length > 7`},
	{"#/job/tokenize", `document.querySelector('.command').textContent.includes('<script>')`},
	{"#/job/nope", `document.body.innerText.includes('There is no job of this name')`},
	{"#/node/gpu0000", `document.querySelectorAll('main tbody tr[tabindex]').length === 8`},
}

// goTo opens a page, and waits until all is there.
func (p *tab) goTo(at, there string) {
	p.t.Helper()
	p.does(`location.hash = '` + at + `'`)
	p.until(`document.title.startsWith(document.querySelector('h1').textContent) && (` + there + `)`)
}

// audit says what testdata/audit.js finds.
func (p *tab) audit(where string) {
	p.t.Helper()
	script, err := os.ReadFile("testdata/audit.js")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, wrong := range eval[[]string](p, string(script)) {
		p.t.Errorf("%s: %s", where, wrong)
	}
}

// dark is what the system of the user prefers.
func dark(on bool) chromedp.Action[chromedp.Void] {
	theme := "light"
	if on {
		theme = "dark"
	}
	return command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}},
	})
}

// TestPages: each page in windows of all sizes, light and dark, with few nodes and many.
func TestPages(t *testing.T) {
	b := browser(t)
	for _, nodes := range []int{1, 16, 1000} {
		s := serve(t, cluster(nodes), func(o *Options) { o.AllowStop = true })
		p := newTab(t, b, s.base)
		p.enter(s)
		for _, at := range pages {
			p.goTo(at.at, at.there)
			for _, width := range []int64{375, 768, 1280, 1920} {
				p.size(width, 900)
				for _, night := range []bool{false, true} {
					p.do(dark(night))
					p.audit(fmt.Sprintf("%d nodes, %s, %d pixels, dark: %v", nodes, at.at, width, night))
				}
			}
		}
	}
}

// TestKeyboard does without a mouse what there is to do.
func TestKeyboard(t *testing.T) {
	s := serve(t, cluster(16), func(o *Options) { o.AllowStop = true })
	p := newTab(t, browser(t), s.base)
	p.enter(s)
	press := func(keys string) { p.do(chromedp.KeyEvent(keys)) }
	active := func(want string) {
		t.Helper()
		p.until(`document.activeElement.matches('` + want + `')`)
	}
	press(kb.Tab)
	active(".skip")
	press(kb.Enter)
	active("main")
	press("/")
	active("#find")
	p.does(`document.activeElement.value = ''`) // the protocol types what a keyboard would not
	press("gpu0003")
	p.until(`document.querySelectorAll('main tbody tr[tabindex]:not([hidden])').length === 1`)
	press(kb.Escape)
	p.until(`document.activeElement === document.body`)
	press("?")
	p.until(`document.querySelector('dialog[open]')`)
	p.audit("the list of keys")
	press(kb.Escape)
	p.until(`!document.querySelector('dialog')`)
	press("t")
	p.until(`document.documentElement.dataset.theme === 'light'`)
	p.does(`document.querySelector('section .grid tbody tr[tabindex="0"]').focus()`)
	press(kb.ArrowDown)
	active(`tr[aria-rowindex="3"]`)
	press(kb.Enter)
	p.until(`location.hash === '#/job/llama-70b' && document.title.startsWith('llama-70b') && document.activeElement.id === 'main'`)
	p.until(`document.querySelectorAll('main tbody tr[tabindex]').length > 7`)
	p.does(`document.querySelector('canvas[tabindex]').focus()`)
	press(kb.ArrowRight)
	p.until(`/^Rank \d+ at .*: \d+/.test(document.querySelector('.chart .note').textContent)`)
	press("c")
	p.until(`location.hash === '#/' && document.title.startsWith('Cluster')`)
}

// TestFocusOrder: the focus goes through the page in the order in which it is read, and is seen.
func TestFocusOrder(t *testing.T) {
	s := serve(t, cluster(16), func(o *Options) { o.AllowStop = true })
	p := newTab(t, browser(t), s.base)
	p.enter(s)
	for _, at := range pages[:2] {
		p.goTo(at.at, at.there)
		p.does(`window.before = null; document.activeElement.blur(); getSelection().removeAllRanges(); scrollTo(0, 0)`)
		stops := 0
		for ; stops < 100; stops++ {
			p.do(chromedp.KeyEvent(kb.Tab))
			said := eval[string](p, `(() => {
				const e = document.activeElement;
				if (e === document.body || e === window.first) return 'over';
				if (!window.before) window.first = e;
				const style = getComputedStyle(e);
				const back = window.before && (e.compareDocumentPosition(window.before) & Node.DOCUMENT_POSITION_FOLLOWING);
				window.before = e;
				if (back) return e.outerHTML.slice(0, 80) + ' comes after what follows it';
				const cell = e.tagName === 'TR' ? getComputedStyle(e.cells[0]).boxShadow : 'none';
				if (style.outlineStyle === 'none' && cell === 'none') return e.outerHTML.slice(0, 80) + ' shows no focus';
				const r = e.getBoundingClientRect();
				if (r.bottom <= 0 || r.top >= innerHeight) return e.outerHTML.slice(0, 80) + ' is out of sight';
				return '';
			})()`)
			if said == "over" {
				break
			}
			if said != "" {
				t.Errorf("%s: %s", at.at, said)
			}
		}
		p.does(`window.first = null`)
		if stops < 10 || stops == 100 {
			t.Errorf("%s: the focus stops %d times", at.at, stops)
		}
	}
}

// TestComesAndGoes: a coordinator that is gone is told, with the age of what is shown, and so is its return.
func TestComesAndGoes(t *testing.T) {
	var gone atomic.Bool
	c := cluster(2)
	c.Fails = func() error {
		if gone.Load() {
			return errors.New("the coordinator <b>is gone</b>")
		}
		return nil
	}
	s := serve(t, c, nil)
	p := newTab(t, browser(t), s.base)
	p.enter(s)
	p.until(`document.getElementById('banner').hidden && document.getElementById('live').textContent === 'live'`)
	gone.Store(true)
	p.until(`document.getElementById('banner').innerText.includes('the coordinator <b>is gone</b>') && /is [2-9].s old/.test(document.getElementById('age').textContent)`)
	p.audit("a coordinator that is gone")
	gone.Store(false)
	p.until(`document.getElementById('banner').hidden && document.getElementById('live').textContent === 'live'`)
}

// TestTwoBrowsers: a link lets one in; the other needs the next.
func TestTwoBrowsers(t *testing.T) {
	s := serve(t, cluster(1), nil)
	link := <-s.links
	s.links <- link
	first := newTab(t, browser(t), s.base)
	first.enter(s)
	second := newTab(t, browser(t), s.base)
	second.do(chromedp.Navigate(link))
	second.until(`document.body.innerText.includes('Each link works once')`)
	second.audit("a used link")
	second.do(chromedp.Navigate(s.base))
	second.until(`document.body.innerText.includes('A link is needed')`)
	if said := second.complaints(); len(said) == 0 || !strings.Contains(strings.Join(said, " "), "403") {
		t.Errorf("the browser says %q", said)
	}
	second.enter(s)
	first.do(chromedp.Reload())
	first.until(`document.querySelector('h1')?.textContent === 'Cluster'`)
	second.does(`localStorage.clear(); location.reload()`)
	second.until(`document.getElementById('wrong')?.textContent.includes('open the newest link')`)
	_ = second.complaints() // the answer was 403
}

// TestStopsAJob asks whether one is sure.
func TestStopsAJob(t *testing.T) {
	s := serve(t, cluster(1), func(o *Options) { o.AllowStop = true })
	p := newTab(t, browser(t), s.base)
	p.enter(s)
	p.goTo(pages[1].at, pages[1].there)
	p.do(chromedp.Click(chromedp.CSS(".actions .danger")))
	p.until(`document.querySelector('dialog[open]')`)
	p.audit("stopping")
	if len(s.cluster.Stopped) > 0 {
		t.Fatalf("%q was stopped unasked", s.cluster.Stopped)
	}
	p.do(chromedp.Click(chromedp.CSS("dialog .danger")))
	p.until(`document.querySelector('dialog').innerText.includes('It was told to stop.')`)
	if len(s.cluster.Stopped) != 1 || s.cluster.Stopped[0] != "llama-70b" {
		t.Errorf("%q were stopped", s.cluster.Stopped)
	}
}

// report writes one of a job, and returns the file.
func report(t *testing.T, nodes int, job string) (file string, body []byte) {
	t.Helper()
	c := cluster(nodes)
	m := view.New(map[string]view.Source{"10.0.0.1:29400": c}, view.Options{Job: job})
	go m.Run(t.Context())
	if err := m.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	for changed := m.Changed(); job == "llama-70b" && len(m.State().Job(job).Ranks) < m.State().Job(job).JobStatus.Ranks; changed = m.Changed() {
		select {
		case <-changed:
		case <-time.After(limit):
			t.Fatal("the ranks do not come")
		}
	}
	var b bytes.Buffer
	s := m.State()
	if err := Report(&b, s, job, ReadLog(t.Context(), c, s.Job(job)), "v0.9.0"); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, b.Bytes()
}

// TestReport opens one from a file, with nothing else there.
func TestReport(t *testing.T) {
	b := browser(t)
	file, _ := report(t, 16, "llama-70b")
	p := newTab(t, b, "file:")
	p.do(chromedp.Navigate("file://" + file))
	p.until(`document.querySelectorAll('main tbody tr[tabindex]').length > 7 && document.body.innerText.includes('by golaunch v0.9.0, from 10.0.0.1:29400')`)
	for _, width := range []int64{375, 1280} {
		p.size(width, 900)
		p.audit("a report")
	}
	p.does(`const m = document.getElementById('meter'); m.value = 'power'; m.dispatchEvent(new Event('change'))`)
	p.until(`document.querySelector('.scale').parentElement.innerText.includes('W')`)
	p.do(chromedp.KeyEvent("?"))
	p.until(`document.querySelector('dialog[open]')`)
	odd, _ := report(t, 1, "tokenize")
	p.do(chromedp.Navigate("file://" + odd))
	p.until(`document.querySelector('.command')?.textContent.includes('<script>alert(1)</script> red')`)
}

// TestReportIsSafe: what is known of a job ends no script, and is JSON.
func TestReportIsSafe(t *testing.T) {
	_, body := report(t, 1, "tokenize")
	if n := bytes.Count(body, []byte("</script>")); n != 2 {
		t.Errorf("%d scripts end", n)
	}
	for _, bad := range []string{"<!--", "alert(1)</", "\u2028", "src=", "http://www.w3.org/1999"} {
		if strings.Contains(string(body), bad) {
			t.Errorf("it has %q", bad)
		}
	}
	if err := Report(&bytes.Buffer{}, &view.State{}, "x", Log{}, "v"); err == nil || !strings.Contains(err.Error(), `no job "x"`) {
		t.Errorf("a report of no job: %v", err)
	}
}
