package web

import (
	"os"
	"testing"

	"github.com/chromedp/chromedp"
)

func (p *tab) shoot(file string) {
	picture, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(file, picture, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func TestLook(t *testing.T) {
	s := serve(t, cluster(16), func(o *Options) { o.AllowStop = true })
	p := newTab(t, browser(t), s.base)
	p.size(1280, 900)
	p.enter(s)
	p.goTo("#/job/llama-70b", pages[1].there)
	p.shoot("/tmp/webhelper/look.png")
	p.do(chromedp.Click(chromedp.CSS("#keys")))
	p.size(375, 700)
	p.shoot("/tmp/webhelper/look2.png")
	p.do(chromedp.Navigate(s.base + "/login?token=x"))
	p.size(1280, 700)
	p.shoot("/tmp/webhelper/look3.png")
	p.complaints()
}
