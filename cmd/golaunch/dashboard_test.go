package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/cdp"

	devtools "github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// trains is a program whose ranks report their steps and loss until a file exists.
const trains = `import os, sys, time
rank = int(os.environ["RANK"])

def train(step):
    with open(os.environ["GOLAUNCH_HEARTBEAT_FILE"] + ".new", "w") as f:
        f.write(f"{step} 100000")
    os.rename(f.name, os.environ["GOLAUNCH_HEARTBEAT_FILE"])
    print(f"step {step} loss=0.{40 + rank}", flush=True)
    time.sleep(0.2 - time.time() % 0.2)  # in step with the other ranks, so that their lines fold

step = 0
while not os.path.exists(sys.argv[1]):
    step += 1
    train(step)
`

// page is a page of a headless Chromium.
type page struct {
	t   *testing.T
	ctx context.Context

	mu    sync.Mutex
	asked []string
}

// newPage opens a page in a browser, on a node that ends with the test.
func newPage(t *testing.T, on nettest.Node) *page {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		suite.Missing(t, "there is no browser; apt-get install chromium")
	}
	there := filepath.Join(t.TempDir(), "chromium")
	if err := os.WriteFile(there, fmt.Appendf(nil, "#!/bin/sh\nexec %s \"$@\"\n", strings.Join(on.Command(path).Args, " ")), 0o700); err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(there), chromedp.UserDataDir(t.TempDir()))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	p := &page{t: t, ctx: ctx}
	t.Cleanup(func() { _ = chromedp.Cancel(ctx) }) // the browser is then killed
	p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, devtools.Enable, devtools.EnableParams{})
		return err
	}))
	if err := chromedp.Listen(ctx, p.hear); err != nil {
		t.Fatal(err)
	}
	return p
}

// hear records the page's requests.
func (p *page) hear(event any) {
	if e, ok := event.(*devtools.EventRequestWillBeSent); ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asked = append(p.asked, e.Request.URL)
	}
}

// requests returns the requests since the last call.
func (p *page) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.asked
	p.asked = nil
	return all
}

func (p *page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// until waits until an expression is true. The page may be replaced meanwhile.
func (p *page) until(expression string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	for {
		_, err := chromedp.Run(ctx, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(0)))
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			text, _ := chromedp.Run(p.ctx, chromedp.Evaluate[string](`document.body.innerText.slice(0, 3000)`))
			p.t.Fatalf("%s is not so: %v\n%s", expression, err, text)
		}
	}
}

// step is the job's step on the page, as a number: the page separates thousands with a space.
const step = `Number([...document.querySelectorAll('.facts div')].find((d) => d.querySelector('dt').textContent === 'Step')?.querySelector('dd span').textContent.replace(/\D/g, ''))`

// TestTheDashboardOfARealJob opens the link before there are jobs: jobs begin, go on, and end. It
// runs on a separate node without other jobs.
func TestTheDashboardOfARealJob(t *testing.T) {
	t.Parallel()
	node := nettest.Nodes(t, "10.79.0.2")[0]
	dir, token := t.TempDir(), tokenFile(t)
	script, stop := filepath.Join(dir, "train.py"), filepath.Join(dir, "stop")
	if err := os.WriteFile(script, []byte(trains), 0o600); err != nil {
		t.Fatal(err)
	}
	here := func(args ...string) *process {
		return start(t, node.Command(append([]string{golaunch(t)}, args...)...), "GOLAUNCH_COORDINATOR=", "HOME="+dir)
	}
	train := func(id string) *process {
		return here("--procs-per-node", "4", "--job-id", id, "--", "python3", script, stop)
	}
	d := here("dashboard", "--listen", "127.0.0.1:0", "--metrics-token-file", token)
	link := d.match(`^(http://127\.0\.0\.1:\d+)/login\?token=\w+$`)
	p := newPage(t, node)
	p.do(chromedp.Navigate(link[0]))
	p.until(`document.querySelector('h1')?.textContent === 'Cluster' && location.search === '' && document.body.innerText.includes('There are no jobs.')`)
	p.answers(link[0], "", 403, "Each link works once")

	job := train("first")
	p.until(`document.body.innerText.includes('first')`)
	p.answers("/metrics", readSecret(t, token), 200, `golaunch_job_state{job="first",state="running"} 1`)
	p.answers("/metrics", "x", 401, "the metrics need the token")
	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = '#/job/first'`))
	p.until(step + ` > 3 && (window.first = ` + step + `)`)
	p.until(step + ` > window.first + 2`)
	p.until(`[...document.querySelectorAll('.log > div')].some((d) => /^r0-3 step [\d.]+ loss=0\.40\.\.0\.43$/.test([...d.children].map((s) => s.textContent).join(' ')))`)
	p.do(chromedp.Click(chromedp.CSS(".actions button")))
	p.until(`/train/.test(document.querySelector('dialog pre')?.textContent)`)
	p.do(chromedp.Click(chromedp.CSS("dialog form button")))

	second := train("second")
	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = '#/'`))
	p.until(`document.body.innerText.includes('second')`)
	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = '#/job/second'`))
	p.until(step + ` > 0`)
	for _, url := range p.requests() {
		if !strings.HasPrefix(url, link[1]+"/") && !strings.HasPrefix(url, "data:") {
			t.Errorf("the page asks for %s", url)
		}
	}
	file := filepath.Join(dir, "report.html")
	here("report", "first", "-o", file).ends(0, "the report is in "+file)
	p.mailed(file)

	p.do(chromedp.Navigate(link[1] + "/#/job/first"))
	p.until(step + ` > 3`)
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	job.ends(0)
	second.ends(0)
	p.until(`document.querySelector('.headline .badge').textContent === 'success' && document.querySelector('.reason').textContent.includes('4 ranks exited 0') && ` + step + ` > 3`)
	p.until(`document.getElementById('banner').hidden`)
	p.answers("/metrics", readSecret(t, token), 200, `golaunch_job_exit_code{job="first"} 0`)
	d.signal(syscall.SIGTERM)
	p.until(`document.getElementById('banner').innerText.includes('does it still run?')`)
	d.ends(0)
}

func readSecret(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// answers checks the server's answer to a client with a token.
func (p *page) answers(at, token string, code int, says string) {
	p.t.Helper()
	said, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](
		fmt.Sprintf(`fetch(%q, { headers: { Authorization: 'Bearer %s' } }).then(async (a) => a.status + ' ' + await a.text())`, at, token), chromedp.EvalAwaitPromise,
	))
	if err != nil || !strings.HasPrefix(said, fmt.Sprint(code, " ")) || !strings.Contains(said, says) {
		p.t.Errorf("%s: %v %s, want %d and %q", at, err, said, code, says)
	}
}

// mailed checks that a job's report, opened from a file, loads no other file.
func (p *page) mailed(file string) {
	p.t.Helper()
	p.requests()
	p.do(chromedp.Navigate("file://" + file))
	p.until(`document.querySelector('h1').textContent === 'first' && document.querySelectorAll('main tbody tr[tabindex]').length === 4 && ` + step + ` > 3`)
	p.until(`/step \d+ loss=0\.40/.test(document.querySelector('.log').textContent)`)
	for _, url := range p.requests() {
		if url != "file://"+file && !strings.HasPrefix(url, "data:") {
			p.t.Errorf("the report asks for %s", url)
		}
	}
}

// TestADashboardInAPod: a dashboard in a pod listens at all addresses, because the pod's address is
// not known before, and its link is for kubectl port-forward. Elsewhere a dashboard does not listen
// at all addresses.
func TestADashboardInAPod(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	at := func(variable string) *process {
		return start(t, exec.Command(golaunch(t), "dashboard", "--listen", ":0"), variable, "GOLAUNCH_COORDINATOR=", "HOME="+home)
	}
	d := at("KUBERNETES_SERVICE_HOST=10.96.0.1")
	d.match(`^(http://127\.0\.0\.1:\d+)/login\?token=\w+$`)
	d.signal(syscall.SIGTERM)
	d.ends(0)
	at("KUBERNETES_SERVICE_HOST=").ends(2, `":0" is all addresses of this machine: name one`)
}
