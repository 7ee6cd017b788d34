package mutants

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// variable names the environment variable whose value is the number of the planted bug.
const variable = "GOLAUNCH_TEST_MUTANT"

// mutant is a bug: in a declaration, the lines of new replace the lines of old.
type mutant struct {
	name string
	// at is the second line of the entry: "State.find in ../other/package, world 7".
	at string
	// dir is the directory of the package, decl the function, "Type.method" or type in it.
	dir, decl string
	old, new  string
	// world is the number of a world that has found the bug, [allWorlds], or empty if none is
	// recorded.
	world string
}

func parseMutant(entry string) (m mutant, err error) {
	lines := strings.Split(strings.TrimSpace(entry), "\n")
	m.name = lines[0]
	if len(lines) < 3 {
		return m, fmt.Errorf("a mutant has a sentence, a function, - and +, not %q", entry)
	}
	m.at = lines[1]
	place, world, _ := strings.Cut(m.at, ", ")
	m.world = strings.TrimPrefix(world, "world ")
	decl, dir, _ := strings.Cut(place, " in ")
	m.decl = decl
	if m.dir, err = filepath.Abs(dir); err != nil {
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
	m.new = strings.TrimSuffix(m.new, "\n")
	return m, nil
}

// pattern matches the mutant's old lines with any indentation.
func (m mutant) pattern() *regexp.Regexp {
	var lines []string
	for line := range strings.Lines(m.old) {
		lines = append(lines, regexp.QuoteMeta(strings.TrimSpace(line)))
	}
	return regexp.MustCompile(strings.Join(lines, `\n\s*`))
}

// apply returns the text of the declaration with the bug in it.
func (m mutant) apply(text string) (string, error) {
	found := m.pattern().FindAllStringIndex(text, -1)
	if len(found) != 1 {
		return "", fmt.Errorf("%s has %q %d times; the mutant needs it once", m.decl, m.old, len(found))
	}
	return text[:found[0][0]] + m.new + text[found[0][1]:], nil
}

// recorded is the list with the number of a world that finds the mutant.
func recorded(list []byte, m mutant, world string) []byte {
	at, _, _ := strings.Cut(m.at, ", ")
	switch world {
	case "":
	case allWorlds:
		at += ", " + allWorlds
	default:
		at += ", world " + world
	}
	return []byte(strings.Replace(string(list), m.name+"\n"+m.at+"\n", m.name+"\n"+at+"\n", 1))
}

// field is source in which many bugs are planted at once, each in a copy of its function. The
// function calls the copy when [variable] names the bug. So the compiler and the linker, which take
// longer than most worlds, run once.
type field struct{ packages map[string]*sources }

// sources are the files of one package, and its declarations by name.
type sources struct {
	name  string
	files map[string]*file
	decls map[string][]declaration
}

// declaration is a function or a type.
type declaration struct {
	file *file
	node ast.Node
}

func (d declaration) text() string { return d.file.text[d.node.Pos()-1 : d.node.End()-1] }

// file is a source file with the text to insert, its offset, and the text to append.
type file struct {
	path, text string
	insert     map[int]string
	copies     strings.Builder
}

// bed is where a bug is planted: in the field, or in a file of its own if the bug is not in a
// function.
type bed struct {
	mutant
	alone map[string]string
}

func (g *field) plant(m mutant, n int) (bed, error) {
	p, err := g.open(m.dir)
	if err != nil {
		return bed{}, err
	}
	if found := len(p.decls[m.decl]); found != 1 {
		return bed{}, fmt.Errorf("%s has %d declarations of %s; the mutant needs one", m.dir, found, m.decl)
	}
	d := p.decls[m.decl][0]
	text, err := m.apply(d.text())
	if err != nil {
		return bed{}, err
	}
	fn, ok := d.node.(*ast.FuncDecl)
	if !ok {
		whole := d.file.text[:d.node.Pos()-1] + text + d.file.text[d.node.End()-1:]
		return bed{mutant: m, alone: map[string]string{d.file.path: whole}}, nil
	}
	d.file.dispatch(fn, n)
	name := int(fn.Name.End() - fn.Pos())
	fmt.Fprintf(&d.file.copies, "\n\n%s%s%s", text[:name], suffix(n), text[name:])
	return bed{mutant: m}, nil
}

func (g *field) open(dir string) (*sources, error) {
	if p, known := g.packages[dir]; known {
		return p, nil
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	p := &sources{files: map[string]*file{}, decls: map[string][]declaration{}}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		if err := p.parse(path); err != nil {
			return nil, err
		}
	}
	g.packages[dir] = p
	return p, nil
}

func (p *sources) parse(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	f := &file{path: path, text: string(text), insert: map[int]string{}}
	p.name, p.files[path] = parsed.Name.Name, f
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := receiver(d) + d.Name.Name
			p.decls[name] = append(p.decls[name], declaration{f, d})
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok {
					p.decls[t.Name.Name] = append(p.decls[t.Name.Name], declaration{f, t})
				}
			}
		}
	}
	return nil
}

// receiver is the type of a method with a dot behind it, or empty for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	t := d.Recv.List[0].Type
	for {
		switch inner := t.(type) {
		case *ast.StarExpr:
			t = inner.X
		case *ast.IndexExpr:
			t = inner.X
		default:
			return fmt.Sprint(t) + "."
		}
	}
}

// overlay has the files for the compiler. In each package, a further file reads [variable].
func (g *field) overlay() map[string]string {
	all := map[string]string{}
	for dir, p := range g.packages {
		for path, f := range p.files {
			if f.copies.Len() == 0 {
				continue
			}
			var text strings.Builder
			for i, c := range []byte(f.text) {
				text.WriteString(f.insert[i])
				text.WriteByte(c)
			}
			all[path] = text.String() + f.copies.String() + "\n"
		}
		all[filepath.Join(dir, "planted_mutant.go")] = fmt.Sprintf(
			"package %s\n\nimport \"os\"\n\nvar plantedMutant = os.Getenv(%q)\n", p.name, variable)
	}
	return all
}

func suffix(n int) string { return fmt.Sprintf("_mutant%d", n) }

// dispatch makes a function call its copy when the bug is planted. It names parameters that have no
// name.
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
