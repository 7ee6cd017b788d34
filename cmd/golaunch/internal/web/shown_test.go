package web

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"github.com/chromedp/chromedp"
)

var rewrite = flag.Bool("rewrite", false, "make the pictures of the page in the documents anew")

// shown is the directory of the documents' pictures of the page. A browser does not draw every byte
// of them alike on all machines, so the directory also has the checksum of the files that draw
// them.
const shown = "../../../../docs/pictures/"

// TestShown: the pictures in the documents show the present page.
func TestShown(t *testing.T) {
	sum := drawnBy(t)
	if *rewrite {
		c := cluster(16)
		s := serve(t, c, nil)
		p := newTab(t, browser(t), s.base)
		p.enter(s)
		p.size(1280, 900)
		p.do(prefers("light"))
		for i, name := range []string{"cluster", "job"} {
			p.goTo(pages[i].at, pages[i].there)
			picture, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
			if err == nil {
				err = os.WriteFile(shown+name+".png", picture, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(shown+"sum", []byte(sum), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if was, err := os.ReadFile(shown + "sum"); err != nil || string(was) != sum {
		t.Errorf("the pictures of the page in docs/pictures are old (%v); run go test ./cmd/golaunch/internal/web -run TestShown -rewrite, and look at them", err)
	}
}

// drawnBy returns the checksum of the page's files and of the cluster that the page shows.
func drawnBy(t *testing.T) string {
	t.Helper()
	sum := sha256.New()
	add := func(name string, read func(string) ([]byte, error)) {
		text, err := read(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(sum, "%s %d\n%s", name, len(text), text)
	}
	files, err := fs.Glob(assets, "assets/*")
	if err != nil || len(files) < 10 {
		t.Fatalf("%q: %v", files, err)
	}
	for _, name := range files {
		add(name, assets.ReadFile)
	}
	add("../view/viewtest/viewtest.go", os.ReadFile)
	return fmt.Sprintf("%x\n", sum.Sum(nil))
}
