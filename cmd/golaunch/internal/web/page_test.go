package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view/viewtest"
	"github.com/golaunch/golaunch/launcher/report"
)

// pages are the pages of the simulated cluster, with a text that shows when they are complete.
var pages = []struct{ at, there string }{
	{"#/", `document.querySelectorAll('main tbody tr[tabindex]').length > 3`},
	{"#/job/llama-70b", `document.querySelectorAll('.log > div').length > 5 && document.querySelectorAll('main tbody tr[tabindex]').length > 7`},
	{"#/job/tokenize", `document.querySelector('.command').textContent.includes('<script>')`},
	{"#/job/nope", `document.body.innerText.includes('There is no job of this name')`},
	{"#/node/gpu0000", `document.querySelectorAll('main tbody tr[tabindex]').length === 8`},
}

// goTo opens a page, and waits until the page is complete.
func (p *tab) goTo(at, there string) {
	p.t.Helper()
	p.does(`location.hash = '` + at + `'`)
	p.until(`document.title.startsWith(document.querySelector('h1').textContent) && (` + there + `)`)
}

// audit reports the findings of testdata/audit.js.
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

// prefers sets the theme that the system of the user prefers.
func prefers(theme string) chromedp.Action[chromedp.Void] {
	return command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}},
	})
}

// TestPages: each page in windows of all sizes, light and dark, with few nodes and many.
func TestPages(t *testing.T) {
	b := browser(t)
	for _, nodes := range []int{1, 16, 1000} {
		c := cluster(nodes)
		if nodes > 100 {
			c.Every = 0 // the model asks once for the ranks' activity: the visible part does not move
		}
		s := serve(t, c, func(o *Options) { o.AllowStop = true })
		p := newTab(t, b, s.base)
		p.enter(s)
		for _, at := range pages {
			p.goTo(at.at, at.there)
			for _, width := range []int64{375, 768, 1280, 1920} {
				p.size(width, 900)
				for _, theme := range []string{"light", "dark"} {
					p.do(prefers(theme))
					p.audit(fmt.Sprintf("%d nodes, %s, %d pixels, %s", nodes, at.at, width, theme))
					p.shoot(fmt.Sprintf("%d%s-%d-%s", nodes, strings.ReplaceAll(at.at, "/", "-"), width, theme))
				}
			}
		}
	}
}

// broken is a cluster with a failed job, in which every name that users choose contains markup.
type broken struct{ *viewtest.Cluster }

const evil = `50%/<img src=x onerror=alert(1)>`

// Query returns the job together with the others.
func (b broken) Query(ctx context.Context, q report.Query) (report.Status, error) {
	if q.Job == evil {
		q.Job = ""
	}
	s, err := b.Cluster.Query(ctx, q)
	bad := evil + "\x1b[31m\u202e\x00"
	s.Charges = append(s.Charges, report.Charge{User: bad, Kind: bad, NodeHours: 1})
	s.Jobs = append(s.Jobs, report.JobStatus{
		ID: evil, Title: bad, Phase: "finished", Waits: bad, Submitted: b.Began, Finished: b.Began.Add(time.Minute), Nodes: []string{bad}, Ranks: 8, Attempt: 3,
		History: []report.Moment{
			{At: b.Began, To: "training", Reason: bad},
			{At: b.Began.Add(30 * time.Second), Attempt: 3, To: "stopping", Cause: bad, Node: bad, Reason: bad},
		},
		Result: &report.Result{Code: 1, Ending: report.EndProgram, Reason: bad, Attempts: 4, Cause: &report.Failure{
			Why: bad, Node: bad, Rank: 3, Attempt: 3, At: b.Began, Lived: time.Minute, Further: 7, Step: -1,
			Tail: strings.Repeat(bad+"\n", 100), Traceback: "Traceback (most recent call last):\n  " + bad, Kernel: "NVRM: Xid 79 " + bad,
			Verdict: report.Verdict{Action: "replace", Cause: "gpu-lost", Title: "a GPU is gone from the bus", Quote: bad, Remedy: "see to it"},
		}},
	})
	return s, err
}

// TestNothingIsMarkup: names, reasons and output are shown unchanged, and a failure is shown with
// all its known facts.
func TestNothingIsMarkup(t *testing.T) {
	c := broken{cluster(1)}
	s := serve(t, c.Cluster, func(o *Options) {
		sources := map[string]view.Source{"10.0.0.1:29400": c}
		o.Model, o.Sources = view.New(sources, view.Options{}), func() map[string]view.Source { return sources }
		o.Stacks = func(context.Context, view.Source, string) (string, error) { return evil + "\x1b[31m\n", nil }
	})
	p := newTab(t, browser(t), s.base)
	p.enter(s)
	p.does(`window.evil = () => [...document.querySelectorAll('.grid a')].find((a) => a.textContent.includes('onerror'))`)
	p.until(`evil()`) // rows arrive one by one
	p.does(`evil().click()`)
	p.until(`document.querySelector('h1').textContent === ` + "`" + evil + "`" + ` && document.body.innerText.includes('Traceback (most recent') && document.body.innerText.includes('7 other ranks') && document.body.innerText.includes('Advice: replace: see to it')`)
	for _, width := range []int64{375, 1280} {
		p.size(width, 900)
		for _, theme := range []string{"light", "dark"} {
			p.do(prefers(theme))
			p.audit("a failed job")
			p.shoot(fmt.Sprintf("failed-%d-%s", width, theme))
		}
	}
	p.goTo(pages[1].at, pages[1].there)
	p.do(chromedp.Click(chromedp.CSS(".actions button")))
	p.until(`document.querySelector('dialog pre')?.textContent.includes('onerror')`)
	if n := eval[int](p, `document.querySelectorAll('img, main script').length`); n > 0 {
		t.Errorf("%d elements are made of names", n)
	}
}

// TestKeyboard uses the page without a mouse.
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
	p.does(`document.activeElement.value = ''`) // the protocol types text that a keyboard would not type
	press("gpu0003")
	p.until(`document.querySelectorAll('main tbody tr[tabindex]:not([hidden])').length === 1`)
	press(kb.Escape)
	p.until(`document.activeElement === document.body`)
	press("?")
	p.until(`document.querySelector('dialog[open]')`)
	p.audit("the list of keys")
	p.shoot("keys")
	press(kb.Escape)
	p.until(`!document.querySelector('dialog')`)
	press("t")
	p.until(`document.documentElement.dataset.theme === 'light'`)
	p.until(`document.querySelector('section .grid tbody tr[tabindex="0"]')`)
	p.does(`document.querySelector('section .grid tbody tr[tabindex="0"]').focus()`)
	press(kb.ArrowDown)
	active(`tr[aria-rowindex="3"]`)
	press(kb.Enter)
	p.until(`location.hash === '#/job/llama-70b' && document.title.startsWith('llama-70b') && document.activeElement.id === 'main'`)
	p.until(`document.querySelectorAll('main tbody tr[tabindex]').length > 7 && document.querySelector('canvas[tabindex]')`)
	p.does(`document.querySelector('canvas[tabindex]').focus()`)
	press(kb.ArrowRight)
	p.until(`/^Rank \d+ at .*: \d+/.test(document.querySelector('.chart .note').textContent)`)
	press("c")
	p.until(`location.hash === '#/' && document.title.startsWith('Cluster')`)
}

// TestFocusOrder: the focus goes through the page in reading order, and is visible.
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

// TestComesAndGoes: the page shows that a coordinator is gone, with the age of its data, and when
// it returns.
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
	p.shoot("gone")
	gone.Store(false)
	p.until(`document.getElementById('banner').hidden && document.getElementById('live').textContent === 'live'`)
}

// TestAHiddenPage: a hidden page asks for nothing, because a browser has few connections to a
// server. When the page is shown again, the log has the same position.
func TestAHiddenPage(t *testing.T) {
	s := serve(t, cluster(1), nil)
	p := newTab(t, browser(t), s.base)
	p.enter(s)
	p.does(`window.streams = 0; window.real = fetch; window.fetch = (...of) => {
		streams++;
		of[1].signal.addEventListener('abort', () => { streams--; });
		return real(...of);
	}; undefined`)
	show := func(hidden bool) {
		p.does(fmt.Sprintf(`Object.defineProperty(document, 'hidden', { configurable: true, get: () => %v }); document.dispatchEvent(new Event('visibilitychange'))`, hidden))
	}
	p.goTo(pages[1].at, pages[1].there)
	p.until(`document.querySelector('.log')`)
	p.does(`window.list = document.querySelector('.log'); list.style.maxHeight = '40px'`)
	p.until(`streams === 2 && list.scrollHeight > 100`)
	p.does(`document.getElementById('log-follow').checked = false; list.scrollTop = 17`)
	show(true)
	p.until(`streams === 0`)
	p.does(`list.firstChild.id = 'old'`)
	show(false)
	p.until(`streams === 2 && !document.getElementById('old') && list.scrollTop === 17`)
}

// over is a cluster with a job that ended after a hang, about which no node reports any more.
type over struct{ *viewtest.Cluster }

// Query returns the job and no other job.
func (o over) Query(context.Context, report.Query) (report.Status, error) {
	return report.Status{Version: "v0.9.0", Since: o.Began, Jobs: []report.JobStatus{{
		ID: "stood", Phase: "finished", Submitted: o.Began, Finished: o.Began.Add(time.Hour), Ranks: 8,
		Result: &report.Result{Code: 1, Ending: report.EndProgram, Reason: "stood still", Cause: &report.Failure{
			Why: "rank 3 lags behind", Rank: 3, Attempt: 2, Step: 1200, Hung: true,
		}},
	}}}, nil
}

// TestAJobThatIsOver: a finished job has no cards for facts that will never be known.
func TestAJobThatIsOver(t *testing.T) {
	c := over{cluster(1)}
	s := serve(t, c.Cluster, func(o *Options) {
		sources := map[string]view.Source{"10.0.0.1:29400": c}
		o.Model, o.Sources = view.New(sources, view.Options{}), func() map[string]view.Source { return sources }
	})
	p := newTab(t, browser(t), s.base)
	p.do(chromedp.Navigate(<-s.links))
	p.until(`document.querySelector('h1')?.textContent === 'Cluster'`)
	p.goTo("#/job/stood", `document.body.innerText.includes('rank 3 lags behind, in attempt 2, at step 1 200')`)
	for from, want := range map[string]string{`.facts dt`: "Ranks Attempt Submitted", `.columns h2`: "Failure Output"} {
		got := eval[string](p, `[...document.querySelectorAll('`+from+`')].filter((e) => e.checkVisibility()).map((e) => e.textContent).join(' ')`)
		if got != want {
			t.Errorf("there are %q, not %q", got, want)
		}
	}
	if got := eval[string](p, `[...document.querySelectorAll('.facts div')].find((d) => d.firstChild.textContent === 'Attempt').querySelector('dd span').textContent`); got != "2" {
		t.Errorf("it is attempt %q", got)
	}
	p.audit("a job that is over")
}

// TestTwoBrowsers: a link admits one browser; the other browser needs the next link.
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
	second.shoot("used-link")
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

// TestAnotherSite: another site's page, in a browser that has a session, cannot stop, read or frame
// anything.
func TestAnotherSite(t *testing.T) {
	s := serve(t, cluster(1), func(o *Options) { o.AllowStop = true })
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<title>evil</title><iframe src="%[1]s/"></iframe><script>
			const body = '{"job":"llama-70b"}';
			const tries = [
				fetch('%[1]s/api/stop', { method: 'POST', mode: 'no-cors', credentials: 'include', body }).then((a) => a.type),
				fetch('%[1]s/api/stop', { method: 'POST', credentials: 'include', body, headers: { 'X-Golaunch-Key': 'x' } }).then(() => 'read'),
				fetch('%[1]s/api/events?page=cluster', { credentials: 'include' }).then(() => 'read'),
			];
			Promise.allSettled(tries).then((all) => { window.got = all.map((a) => a.value || 'refused').join(' '); });
		</script>`, s.base)
	}))
	defer evil.Close()
	p := newTab(t, browser(t), s.base, evil.URL)
	p.enter(s)
	p.do(chromedp.Navigate(strings.Replace(evil.URL, "127.0.0.1", "localhost", 1)))
	p.until(`window.got !== undefined`)
	if got := eval[string](p, `window.got`); got != "refused refused refused" {
		t.Errorf("a page of elsewhere gets %q", got)
	}
	if len(s.cluster.Stopped) > 0 {
		t.Errorf("it has stopped %q", s.cluster.Stopped)
	}
	if said := strings.Join(p.complaints(), "\n"); !strings.Contains(said, "frame-ancestors 'none'") {
		t.Errorf("it may frame the page; the browser says %s", said)
	}
}

// TestStopsAJob: the page asks before it stops a job.
func TestStopsAJob(t *testing.T) {
	s := serve(t, cluster(1), func(o *Options) { o.AllowStop = true })
	p := newTab(t, browser(t), s.base)
	p.enter(s)
	p.goTo(pages[1].at, pages[1].there)
	p.do(chromedp.Click(chromedp.CSS(".actions .danger")))
	p.until(`document.querySelector('dialog[open]')`)
	p.audit("stopping")
	p.shoot("stopping")
	if len(s.cluster.Stopped) > 0 {
		t.Fatalf("%q was stopped unasked", s.cluster.Stopped)
	}
	p.do(chromedp.Click(chromedp.CSS("dialog .danger")))
	p.until(`document.querySelector('dialog').innerText.includes('It was told to stop.')`)
	if len(s.cluster.Stopped) != 1 || s.cluster.Stopped[0] != "llama-70b" {
		t.Errorf("%q were stopped", s.cluster.Stopped)
	}
}

// TestFindings: slow ranks are named first, and are first in the table.
func TestFindings(t *testing.T) {
	file, body := writeReport(t, 16, "llama-70b")
	found := []byte(`"findings":[{"text":"rank 37: 12 % slower than the median for 4 min; without it the job would be 9 % faster","ranks":[37],"node":"gpu0004"}]`)
	body = bytes.Replace(body, []byte(`"findings":[]`), found, 1)
	if err := os.WriteFile(file, body, 0o600); err != nil {
		t.Fatal(err)
	}
	p := newTab(t, browser(t), "file:")
	p.do(chromedp.Navigate("file://" + file))
	p.until(`document.querySelector('.findings')?.innerText.startsWith('rank 37: 12 % slower')`)
	p.until(`document.querySelector('.columns').innerText.startsWith('Findings')`)
	p.until(`/^37\s+gpu0004\s+see findings/.test(document.querySelector('main tr.marked:first-of-type, main tbody tr[tabindex]').innerText)`)
	p.audit("findings")
	p.shoot("findings")
}

// plainNodes is a cluster whose nodes have no GPUs, but have labels, and numbers without leading
// zeros in their names.
type plainNodes struct{ *viewtest.Cluster }

func (c plainNodes) Query(ctx context.Context, q report.Query) (report.Status, error) {
	s, err := c.Cluster.Query(ctx, q)
	for i := range s.Nodes {
		s.Nodes[i].Name, s.Nodes[i].GPUs, s.Nodes[i].Silent = fmt.Sprint("node", i+1), nil, 0
		s.Nodes[i].Labels = map[string]string{"golaunch.dev/some-long-label": "with-a-long-value", "rack": "7"}
	}
	return s, err
}

// TestPlainNodes checks that nodes are in numerical order, and that missing values have no chart.
func TestPlainNodes(t *testing.T) {
	c := cluster(12)
	s := serve(t, c, func(o *Options) { o.Model = view.New(map[string]view.Source{"here": plainNodes{c}}, view.Options{}) })
	p := newTab(t, browser(t), s.base)
	p.enter(s)
	p.goTo("#/", `[...document.querySelectorAll('main a')].map((a) => a.textContent).filter((n) => /^node/.test(n)).slice(0, 3).join() === 'node1,node2,node3'`)
	p.until(`![...document.querySelectorAll('h2')].some((e) => e.textContent === 'GPU map' && e.offsetParent)`)
	p.audit("nodes without GPUs")
	p.shoot("plain-nodes")
	p.goTo("#/node/node2", `document.querySelector('.facts').innerText.includes('rack=7')`)
	p.until(`![...document.querySelectorAll('h2')].some((e) => e.textContent === 'Network' && e.offsetParent)`)
	p.audit("a node without GPUs")
	p.shoot("plain-node")
	p.goTo("#/job/eval-nightly", `document.body.innerText.includes('no rank has started yet') && !document.querySelector('.actions button')`)
	p.audit("a job that waits")
	p.shoot("waits")
}

// TestStalled: a job whose ranks make no progress does not look well, and the page predicts no end.
func TestStalled(t *testing.T) {
	c := cluster(4)
	c.Still = func(int) time.Time { return time.Now().Add(-5 * time.Minute) }
	s := serve(t, c, nil)
	p := newTab(t, browser(t), s.base)
	p.enter(s)
	p.goTo("#/job/llama-70b", `document.querySelector('.headline .badge.bad')?.textContent === 'stalled'`)
	p.until(`/no heartbeat for 5m/.test(document.querySelector('.reason.bad').textContent)`)
	p.until(`/Left\s*–\s*no step is made/.test(document.querySelector('.facts').innerText)`)
	p.until(`/^\d+\s+gpu000\d\s+no heartbeat for/.test(document.querySelector('main tbody tr[tabindex]').innerText)`)
	p.audit("stalled")
	p.shoot("stalled")
	p.goTo("#/", `document.querySelector('main td.tone.bad')?.textContent === 'stalled'`)
}
