package web

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
)

// writeReport writes a report of a job, and returns the file.
func writeReport(t *testing.T, nodes int, job string) (file string, body []byte) {
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

// TestReport opens a report from a file in an otherwise empty directory.
func TestReport(t *testing.T) {
	b := browser(t)
	file, _ := writeReport(t, 16, "llama-70b")
	p := newTab(t, b, "file:")
	p.do(chromedp.Navigate("file://" + file))
	p.until(`document.querySelectorAll('main tbody tr[tabindex]').length > 7 && document.body.innerText.includes('by golaunch v0.9.0, from 10.0.0.1:29400')`)
	for _, width := range []int64{375, 1280} {
		p.size(width, 900)
		p.audit("a report")
		p.shoot(fmt.Sprint("report-", width))
	}
	p.does(`const m = document.getElementById('meter'); m.value = 'power'; m.dispatchEvent(new Event('change'))`)
	p.until(`document.querySelector('.scale').parentElement.innerText.includes('W')`)
	p.do(chromedp.KeyEvent("?"))
	p.until(`document.querySelector('dialog[open]')`)
	odd, _ := writeReport(t, 1, "tokenize")
	p.do(chromedp.Navigate("file://" + odd))
	p.until(`document.querySelector('.command')?.textContent.includes('<script>alert(1)</script> red')`)
}

// TestReportIsSafe: no fact about a job can end a script, and all facts are JSON.
func TestReportIsSafe(t *testing.T) {
	_, body := writeReport(t, 1, "tokenize")
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
