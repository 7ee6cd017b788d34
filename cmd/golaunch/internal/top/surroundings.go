package top

import "strings"

// Look says what a terminal can show, according to its variables.
type Look struct {
	// Dumb is true if TERM is missing, or says that the terminal cannot draw.
	Dumb bool
	// Plain has no colours (NO_COLOR). ASCII has only ASCII characters (the locale).
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
		if v := vars[name]; v != "" { // the first that is set counts, as in setlocale(3)
			charset := strings.ToLower(v)
			l.ASCII = !strings.Contains(charset, "utf-8") && !strings.Contains(charset, "utf8")
			break
		}
	}
	return l
}

// themes returns the themes that a terminal can show. Without a locale, as in many containers, the
// terminal is assumed to know UTF-8.
func (l Look) themes() []Theme {
	all := Themes()
	if l.Plain {
		return all[len(all)-1:]
	}
	return all
}
