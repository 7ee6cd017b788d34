package top

import (
	"fmt"
	"html"
	"os"
	"strings"
	"testing"

	"charm.land/lipgloss/v2"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view/viewtest"
)

// shown is the picture of golaunch top in the documents, from the top of the repository.
const shown = "../../../../docs/pictures/top.svg"

// TestShown draws the picture in the documents, which is the same as in a terminal.
func TestShown(t *testing.T) {
	s := simulated(t, &viewtest.Cluster{Nodes: 16, Slow: 3}, "j", "j", "enter").sized(110, 30)
	s.themes = []Theme{dark(t)}
	got := svg(s.frame(), s.width, s.height)
	if *rewrite {
		if err := os.WriteFile(shown, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(shown)
	if err != nil || got != string(want) {
		t.Errorf("%s is not what is drawn now (%v); run go test ./cmd/golaunch/internal/top -rewrite", shown, err)
	}
}

func dark(t *testing.T) Theme {
	t.Helper()
	for _, theme := range Themes() {
		if theme.Name == "dark" {
			return theme
		}
	}
	t.Fatal("there is no dark theme")
	return Theme{}
}

// style is the style in which a terminal writes.
type style struct {
	ink, ground string
	bold        bool
}

// set applies the parameters of a control sequence (ECMA-48, SGR).
func (s style) set(parameters string) style {
	p := strings.Split(parameters, ";")
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case "", "0":
			s = style{}
		case "1":
			s.bold = true
		case "7":
			s.ink, s.ground = "#16181d", "#c8ccd4"
		case "38", "48":
			colour := fmt.Sprintf("rgb(%s,%s,%s)", p[i+2], p[i+3], p[i+4])
			if p[i] == "38" {
				s.ink = colour
			} else {
				s.ground = colour
			}
			i += 4
		}
	}
	return s
}

// svg draws a frame, with each run of one style placed at its columns, so that the reader's font
// does not matter.
func svg(frame string, width, height int) string {
	const w, h = 8, 17
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="13">`+"\n",
		(width+2)*w, (height+1)*h)
	b.WriteString(`<rect width="100%" height="100%" rx="6" fill="#16181d"/>` + "\n")
	var s style
	for y, line := range strings.Split(frame, "\n") {
		x := 1
		for len(line) > 0 {
			text, rest, _ := strings.Cut(line, "\x1b[")
			if n := lipgloss.Width(text); n > 0 {
				if s.ground != "" {
					fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n", x*w, y*h+h/2, n*w, h, s.ground)
				}
				weight := ""
				if s.bold {
					weight = ` font-weight="bold"`
				}
				ink := s.ink
				if ink == "" {
					ink = "#c8ccd4"
				}
				if strings.TrimSpace(text) != "" {
					fmt.Fprintf(&b, `<text x="%d" y="%d" textLength="%d" xml:space="preserve" fill="%s"%s>%s</text>`+"\n", x*w, (y+1)*h+h/4, n*w, ink, weight, html.EscapeString(text))
				}
				x += n
			}
			parameters, after, is := strings.Cut(rest, "m")
			if is {
				s = s.set(parameters)
			}
			line = after
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}
