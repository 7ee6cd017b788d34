package forkserver

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/golaunch/golaunch/internal/host/lazyregexp"
)

// Program is a command line of CPython, parsed as the interpreter parses it (Python/getopt.c and
// initconfig.c of CPython).
type Program struct {
	// Interpreter is the command's first word. Flags are the interpreter's options, which come
	// before the program.
	Interpreter string
	Flags       []string
	// Kind is what Name is.
	Kind Kind
	// Name is a file, the name of a module, or Python code.
	Name string
	// Args are the program's arguments.
	Args []string
}

// Kind is a way to name a program.
type Kind string

const (
	Script  Kind = "script"  // python FILE, which may be a directory or an archive too
	Module  Kind = "module"  // python -m NAME
	Command Kind = "command" // python -c CODE
)

// interpreters matches the names under which CPython is installed. The interpreter itself says
// whether it is CPython, and its version.
var interpreters = lazyregexp.New(`^python(3(\.\d+t?)?)?$`)

// Parse parses a command line. The error says why no rank can be forked for the command.
func Parse(argv []string) (Program, error) {
	if len(argv) == 0 || !interpreters.Get().MatchString(filepath.Base(argv[0])) {
		return Program{}, fmt.Errorf("%q is not Python: the command must begin with python, python3 or python3.N (what a script starts is not seen)",
			strings.Join(argv[:min(len(argv), 1)], ""))
	}
	p := Program{Interpreter: argv[0]}
	for i := 1; i < len(argv); i++ {
		word := argv[i]
		switch {
		case word == "--check-hash-based-pycs" && i+1 < len(argv):
			p.Flags = append(p.Flags, word, argv[i+1])
			i++
		case strings.HasPrefix(word, "--") && word != "--":
			return Program{}, fmt.Errorf("python %s runs no program that could be forked", word)
		case word == "--" && i+1 < len(argv):
			p.Kind, p.Name, p.Args = Script, argv[i+1], argv[i+2:]
			return p, p.check()
		case word == "-" || word == "--" || !strings.HasPrefix(word, "-"):
			p.Kind, p.Name, p.Args = Script, word, argv[i+1:]
			return p, p.check()
		default:
			used, done, err := p.options(word[1:], argv[i+1:])
			if done || err != nil {
				return p, err
			}
			i += used
		}
	}
	return Program{}, errors.New("python reads its program from its input")
}

func (p Program) check() error {
	if p.Name == "-" || p.Name == "--" {
		return errors.New("python reads its program from its input")
	}
	return nil
}

// options parses a word of one-letter options without its dash, and returns how many of the
// following words these options use. done says that one of the options names the program.
func (p *Program) options(letters string, rest []string) (used int, done bool, err error) {
	for i, letter := range letters {
		after := letters[i+1:]
		switch letter {
		case 'c', 'm':
			if i > 0 {
				p.Flags = append(p.Flags, "-"+letters[:i])
			}
			p.Kind = map[rune]Kind{'c': Command, 'm': Module}[letter]
			switch {
			case after != "":
				p.Name, p.Args = after, rest
			case len(rest) > 0:
				p.Name, p.Args = rest[0], rest[1:]
			default:
				return 0, true, fmt.Errorf("python -%c needs a word after it", letter)
			}
			return 0, true, nil
		case 'W', 'X':
			if after != "" {
				p.Flags = append(p.Flags, "-"+letters)
				return 0, false, nil
			}
			if len(rest) == 0 {
				return 0, false, fmt.Errorf("python -%c needs a word after it", letter)
			}
			p.Flags = append(p.Flags, "-"+letters, rest[0])
			return 1, false, nil
		case 'b', 'B', 'd', 'E', 'I', 'O', 'P', 'q', 'R', 's', 'S', 't', 'u', 'v':
		case 'i', 'x':
			return 0, false, fmt.Errorf("a program of python -%c cannot be forked", letter)
		default:
			return 0, false, fmt.Errorf("python -%c runs no program that could be forked", letter)
		}
	}
	p.Flags = append(p.Flags, "-"+letters)
	return 0, false, nil
}

// argv returns sys.argv as the interpreter makes it.
func (p Program) argv() []string {
	first := map[Kind]string{Script: p.Name, Module: "-m", Command: "-c"}[p.Kind]
	return append([]string{first}, p.Args...)
}

// Same reports whether two programs have the same interpreter and flags, so that one server can
// fork both.
func (p Program) Same(q Program) bool {
	return p.Interpreter == q.Interpreter && strings.Join(p.Flags, "\x00") == strings.Join(q.Flags, "\x00")
}
