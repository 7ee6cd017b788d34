package top

import (
	"strings"
	"unicode"
)

// want is an action beyond the screen that a key asks for.
type want int

const (
	nothing want = iota
	quit
	suspend
	// wantLog, wantStacks and wantProbe are about the selected row.
	wantLog
	wantStacks
	wantProbe
)

// far is greater than the length of any list.
const far = 1 << 30

// press handles a key. Keys have bubbletea's names: "j", "pgdown", "ctrl+c".
func (s *screen) press(key string) want {
	if after, quick := strings.CutPrefix(key, "alt+"); quick { // terminals send esc and another key in this form, if the keys come together
		s.press("esc")
		return s.press(after)
	}
	switch {
	case key == "ctrl+c":
		return quit
	case key == "ctrl+z":
		return suspend
	case s.typing:
		s.write(key)
		return nothing
	case s.motion(key):
		return nothing
	case s.over != noOverlay:
		return s.pressOver(key)
	}
	return s.pressMain(key)
}

// motion handles movement, with the keys of raytop, k9s, less and vi.
func (s *screen) motion(key string) bool {
	switch key {
	case "j", "down":
		s.scroll(1)
	case "k", "up":
		s.scroll(-1)
	case "pgdown", "ctrl+f", "space", " ":
		s.scroll(s.page())
	case "pgup", "ctrl+b":
		s.scroll(-s.page())
	case "ctrl+d":
		s.scroll(s.page() / 2)
	case "ctrl+u":
		s.scroll(-s.page() / 2)
	case "g", "home":
		s.scroll(-far)
	case "G", "end":
		s.scroll(far)
	default:
		return false
	}
	return true
}

// pressOver handles keys over an overlay. Any key closes the overlay. A key that asks for something
// then does so: s and d, for example, ask again.
func (s *screen) pressOver(key string) want {
	was := s.over
	s.over = noOverlay
	switch {
	case key == "?" && was == helpOverlay:
	case key == "t", key == "?", key == "l", key == "s", key == "d":
		return s.pressMain(key)
	}
	return nothing
}

func (s *screen) pressMain(key string) want {
	switch key {
	case "q":
		return quit
	case "enter", "right":
		if s.focus == tablePane {
			s.enter()
		}
	case "esc", "backspace", "left":
		s.back()
	case "tab":
		s.next(1)
	case "shift+tab":
		s.next(-1)
	case "/":
		s.typing, s.focus = true, tablePane
	case "n":
		s.toggleRows()
	case "a":
		s.attempts()
	case "m":
		s.measure++
		if s.layout()[heatPane] == 0 { // if the heat map is hidden, the key shows it
			s.focus, s.lower = tablePane, heatPane
		}
	case "t":
		s.theme = (s.theme + 1) % len(s.themes)
	case "?", "h", "f1":
		s.over, s.overTop = helpOverlay, 0
	default:
		return s.ask(key)
	}
	return nothing
}

// ask handles the keys that ask the cluster for something.
func (s *screen) ask(key string) want {
	switch key {
	case "l":
		s.focus, s.lower, s.logTop = logPane, logPane, -1
		return wantLog
	case "s":
		s.over, s.overTop = stackOverlay, 0
		return wantStacks
	case "d":
		s.over, s.overTop = probeOverlay, 0
		return wantProbe
	}
	return nothing
}

// next gives the focus to another pane.
func (s *screen) next(by pane) {
	s.focus = (s.focus + by + panes) % panes
	if s.focus != tablePane {
		s.lower = s.focus
	}
}

// maxFind bounds a filter, in bytes.
const maxFind = 100

// write handles keys while the user types a filter.
func (s *screen) write(key string) {
	switch r := []rune(key); {
	case key == "enter":
		s.typing = false
	case key == "esc":
		s.typing, s.find = false, ""
	case key == "backspace":
		s.find = shorten(s.find)
	case key == "ctrl+u":
		s.find = ""
	case key == "space":
		s.find += " "
	case len(r) == 1 && unicode.IsPrint(r[0]) && len(s.find) < maxFind:
		s.find += key
	}
	s.spot().moved = false
	s.settle()
}
