package top

import "strings"

// Look is what a terminal can show, as its variables say.
type Look struct {
	// Dumb is no terminal to draw on: it has a TERM that says so, or none.
	Dumb bool
	// Plain has no colours (NO_COLOR), and ASCII no other characters (the locale).
	Plain, ASCII bool
}

// Surroundings reads the variables of a terminal.
func Surroundings(environ []string) Look {
	vars := map[string]string{}
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		vars[name] = value
	}
	l := Look{Dumb: vars["TERM"] == "" || vars["TERM"] == "dumb", Plain: vars["NO_COLOR"] != ""}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := vars[name]; v != "" { // the first that is given counts, as in setlocale(3)
			charset := strings.ToLower(v)
			l.ASCII = !strings.Contains(charset, "utf-8") && !strings.Contains(charset, "utf8")
			break
		}
	}
	return l
}

// themes are those that a terminal can show. Where no locale is given, as in many containers, it is taken for one that knows UTF-8.
func (l Look) themes() []Theme {
	all := Themes()
	if l.Plain {
		return all[len(all)-1:]
	}
	return all
}
