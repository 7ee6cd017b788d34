package top

import (
	"strings"

	"charm.land/lipgloss/v2"
)

// role is the meaning of a piece of the screen. A theme gives it a style.
type role int

const (
	text role = iota
	dim
	title
	head
	good
	note
	warn
	bad
	chosen
	// heat0 and the following roles are the levels of the heat map, from the lowest.
	heat0
	heats = 8
	roles = heat0 + heats
)

// Theme is a name and the styles of all roles.
type Theme struct {
	Name   string
	styles [roles]lipgloss.Style
}

// Themes are the themes that the key t shows in turn. The theme for colour-blind people has blue
// and orange instead of green and red, and the heat colours of cividis, which keep their order in
// black and white. The last has no colour.
func Themes() []Theme {
	return []Theme{
		colours("dark", "#8a8f98", "#5fd787", "#6cb6ff", "#ffd75f", "#ff6b68", "#2f3b4d",
			"#4b5a9a 2c7fb8 41a6a0 7fc97f c7d94c fdc23b f98037 f8333c"),
		colours("light", "#6b7280", "#18794e", "#0b5cad", "#8a5a00", "#c01c28", "#d8e3f3",
			"#9fb3d9 6f9bd1 3f88b5 2b8a78 6e8b1f b07a00 c2560c b3001b"),
		colours("colour-blind", "#8a8f98", "#56b4e9", "#9ecae1", "#e6c229", "#ff9f1c", "#2f3b4d",
			"#3f5a9c 575d6d 6e6e72 868379 a29a72 bfb064 ddc94f fee838"),
		mono(),
	}
}

// colours returns a theme with the given colours of its roles, from dim to chosen, and of the heat
// map.
func colours(name, grey, green, blue, yellow, red, back, heat string) Theme {
	base := func(c string) lipgloss.Style { return lipgloss.NewStyle().Foreground(lipgloss.Color(c)) }
	t := Theme{Name: name}
	for i := range t.styles {
		t.styles[i] = lipgloss.NewStyle()
	}
	t.styles[dim], t.styles[good], t.styles[note], t.styles[warn] = base(grey), base(green), base(blue), base(yellow)
	t.styles[bad], t.styles[title], t.styles[head] = base(red).Bold(true), lipgloss.NewStyle().Bold(true), base(grey).Bold(true)
	t.styles[chosen] = lipgloss.NewStyle().Background(lipgloss.Color(back)).Bold(true)
	for i, c := range strings.Fields(heat) {
		t.styles[heat0+role(i)] = base("#" + strings.TrimPrefix(c, "#"))
	}
	return t
}

func mono() Theme {
	t := Theme{Name: "mono"}
	for i := range t.styles {
		t.styles[i] = lipgloss.NewStyle()
	}
	t.styles[dim], t.styles[title] = lipgloss.NewStyle().Faint(true), lipgloss.NewStyle().Bold(true)
	t.styles[head], t.styles[bad], t.styles[warn] = t.styles[title], t.styles[title], t.styles[title]
	t.styles[chosen] = lipgloss.NewStyle().Reverse(true)
	return t
}

// look is a theme that is ready to paint.
type look struct {
	on, off [roles]string
	// heat has the characters of the heat map from the lowest level, and mark the characters of the
	// alert levels.
	heat, mark     [heats]string
	line, ellipsis string
}

// newLook prepares a theme, in ASCII if the terminal has no other characters.
func newLook(t Theme, ascii bool) *look {
	l := &look{line: "─", ellipsis: "…"}
	copy(l.heat[:], strings.Split("▁▂▃▄▅▆▇█", ""))
	copy(l.mark[:], []string{" ", "·", "▲", "✗"})
	if ascii {
		l.line, l.ellipsis = "-", "~"
		copy(l.heat[:], strings.Split("_.:-=+*#", ""))
		copy(l.mark[:], []string{" ", "-", "!", "x"})
	}
	for i := range t.styles {
		l.on[i], l.off[i], _ = strings.Cut(t.styles[i].Render("x"), "x")
	}
	return l
}

// paint styles a text by its role.
func (l *look) paint(r role, s string) string {
	if l.on[r] == "" || s == "" {
		return s
	}
	return l.on[r] + s + l.off[r]
}

func roleOf(l Level) role { return [...]role{text, note, warn, bad}[l] }
