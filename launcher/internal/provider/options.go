package provider

import (
	"fmt"
	"slices"
	"strings"
)

// options are the options of a command line, each with its values: --name=value, or --name and
// words that do not begin with "--".
type options []option

type option struct {
	name   string
	values []string
	words  []string
}

func parseOptions(words []string) (all options, err error) {
	for _, w := range words {
		if strings.HasPrefix(w, "--") && len(w) > 2 {
			name, value, valued := strings.Cut(w, "=")
			o := option{name: name, words: []string{w}}
			if valued {
				o.values = []string{value}
			}
			all = append(all, o)
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("%q is no option; want --NAME=VALUE", w)
		}
		last := &all[len(all)-1]
		last.values, last.words = append(last.values, w), append(last.words, w)
	}
	return all, nil
}

// only returns the words of the options with these names, and without returns the words of all
// other options.
func (o options) only(names ...string) []string {
	return o.filter(func(name string) bool { return slices.Contains(names, name) })
}

func (o options) without(names ...string) []string {
	return o.filter(func(name string) bool { return !slices.Contains(names, name) })
}

func (o options) filter(keep func(name string) bool) (words []string) {
	for _, x := range o {
		if keep(x.name) {
			words = append(words, x.words...)
		}
	}
	return words
}

// values returns the values of all options with a name.
func (o options) values(name string) (all []string) {
	for _, x := range o {
		if x.name == name {
			all = append(all, x.values...)
		}
	}
	return all
}

// has reports whether there is an option with one of these names.
func (o options) has(names ...string) bool { return len(o.only(names...)) > 0 }

// refuse returns an error if one of these options is given, since golaunch sets it itself.
func (o options) refuse(names ...string) error {
	for _, x := range o {
		if slices.Contains(names, x.name) {
			return fmt.Errorf("golaunch sets %s itself", x.name)
		}
	}
	return nil
}
