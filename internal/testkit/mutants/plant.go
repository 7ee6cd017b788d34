package mutants

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// variable is that of the environment which names the bug that is planted.
const variable = "GOLAUNCH_TEST_MUTANT"

// mutant is a bug: in a file, old becomes new. At is its line of the list, and world is the number of one that has found it; empty when none is known.
type mutant struct{ name, at, file, old, new, world string }

func parseMutant(entry string) (m mutant, err error) {
	lines := strings.Split(strings.TrimSpace(entry), "\n")
	m.name = lines[0]
	if len(lines) < 3 {
		return m, fmt.Errorf("a mutant has a sentence, a file, - and +, not %q", entry)
	}
	m.at = lines[1]
	file, world, _ := strings.Cut(m.at, ", ")
	m.world = strings.TrimPrefix(world, "world ")
	if m.file, err = filepath.Abs(file); err != nil {
		return m, err
	}
	for _, line := range lines[2:] {
		switch {
		case strings.HasPrefix(line, "-"):
			m.old += line[1:] + "\n"
		case strings.HasPrefix(line, "+"):
			m.new += line[1:] + "\n"
		default:
			return m, fmt.Errorf("unexpected line %q", line)
		}
	}
	m.old, m.new = strings.TrimSuffix(m.old, "\n"), strings.TrimSuffix(m.new, "\n")
	return m, nil
}

// recorded is the list with the number of a world behind a bug's file.
func recorded(list []byte, m mutant, world string) []byte {
	head := m.name + "\n" + m.at
	at, _, _ := strings.Cut(m.at, ", ")
	switch world {
	case "":
	case allWorlds:
		at += ", " + allWorlds
	default:
		at += ", world " + world
	}
	return []byte(strings.Replace(string(list), head+"\n", m.name+"\n"+at+"\n", 1))
}

// field is a package's source in which many bugs are planted at once, each in a copy of the function that it is in. The function
// calls the copy when [variable] names the bug: the compiler and the linker, which take longer than most worlds, run once.
type field struct{ files map[string]*file }

// file is a file's text as it is, what goes into it at which offset, and what follows it.
type file struct {
	text, name string
	insert     map[int]string
	copies     strings.Builder
}

// bed is where a bug is planted: in the field, or in files of its own where no function can be copied.
type bed struct {
	mutant
	alone map[string]string
}

func (g *field) plant(m mutant, n int) (bed, error) {
	f, err := g.open(m.file)
	if err != nil {
		return bed{}, err
	}
	if n := strings.Count(f.text, m.old); n != 1 {
		return bed{}, fmt.Errorf("%s has %q %d times; the mutant needs it once", m.file, m.old, n)
	}
	mutated := strings.Replace(f.text, m.old, m.new, 1)
	before, err := parse(f.text)
	if err != nil {
		return bed{}, err
	}
	after, err := parse(mutated)
	if err != nil {
		return bed{}, err
	}
	f.name = before.name
	was, is := differ(before, after)
	if was == nil {
		return bed{mutant: m, alone: map[string]string{m.file: mutated}}, nil
	}
	f.dispatch(was, n)
	start, name := int(is.Pos())-1, int(is.Name.End())-1
	fmt.Fprintf(&f.copies, "\n\n%s%s%s", after.text[start:name], suffix(n), after.text[name:int(is.End())-1])
	return bed{mutant: m}, nil
}

func (g *field) open(path string) (*file, error) {
	if f, known := g.files[path]; known {
		return f, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	g.files[path] = &file{text: string(text), insert: map[int]string{}}
	return g.files[path], nil
}

// overlay has the files as the compiler is to see them, and one more in each directory, which knows the bug.
func (g *field) overlay() map[string]string {
	all := map[string]string{}
	for path, f := range g.files {
		var text strings.Builder
		for i, c := range []byte(f.text) {
			text.WriteString(f.insert[i])
			text.WriteByte(c)
		}
		all[path] = text.String() + f.copies.String() + "\n"
		all[filepath.Join(filepath.Dir(path), "planted_mutant.go")] = fmt.Sprintf(
			"package %s\n\nimport \"os\"\n\nvar plantedMutant = os.Getenv(%q)\n", f.name, variable)
	}
	return all
}

// source is a file that was parsed. Positions count from 1.
type source struct {
	text, name string
	decls      []ast.Decl
}

func parse(text string) (source, error) {
	f, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
	if err != nil {
		return source{}, err
	}
	return source{text, f.Name.Name, f.Decls}, nil
}

// differ is the one function that differs, as it was and as it is, and nil where it is not one.
func differ(before, after source) (was, is *ast.FuncDecl) {
	if len(before.decls) != len(after.decls) {
		return nil, nil
	}
	for i, d := range before.decls {
		e := after.decls[i]
		if before.text[d.Pos()-1:d.End()-1] == after.text[e.Pos()-1:e.End()-1] {
			continue
		}
		f, _ := d.(*ast.FuncDecl)
		g, _ := e.(*ast.FuncDecl)
		if was != nil || f == nil || g == nil || f.Name.Name == "init" ||
			before.text[f.Pos()-1:f.Body.Pos()-1] != after.text[g.Pos()-1:g.Body.Pos()-1] {
			return nil, nil
		}
		was, is = f, g
	}
	return was, is
}

func suffix(n int) string { return fmt.Sprintf("_mutant%d", n) }

// dispatch has a function call its copy when the bug is planted. Parameters that have no name get one.
func (f *file) dispatch(d *ast.FuncDecl, n int) {
	call := d.Name.Name + suffix(n) + "("
	if d.Recv != nil {
		call = strings.Join(f.names(d.Recv, "self"), "") + "." + call
	}
	args := f.names(d.Type.Params, "arg")
	call += strings.Join(args, ", ")
	if l := d.Type.Params.List; len(l) > 0 {
		if _, variadic := l[len(l)-1].Type.(*ast.Ellipsis); variadic {
			call += "..."
		}
	}
	call += ")"
	if d.Type.Results != nil {
		call = "return " + call
	} else {
		call += "; return"
	}
	f.insert[int(d.Body.Lbrace)] += fmt.Sprintf(" if plantedMutant == \"%d\" { %s };", n, call)
}

func (f *file) names(list *ast.FieldList, stem string) (all []string) {
	for _, p := range list.List {
		if len(p.Names) == 0 {
			all = append(all, fmt.Sprint(stem, len(all)))
			f.insert[int(p.Type.Pos())-1] = all[len(all)-1] + " "
		}
		for _, name := range p.Names {
			all = append(all, name.Name)
			if name.Name == "_" {
				all[len(all)-1] = fmt.Sprint(stem, len(all))
				f.insert[int(name.Pos())-1] = all[len(all)-1] + " /*"
				f.insert[int(name.End())-1] = "*/"
			}
		}
	}
	return all
}
