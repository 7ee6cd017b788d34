package deptest

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// inits are the packages whose init functions do not begin a helper process, with the reason.
var inits = map[string]string{
	"launcher":                   "it tells internal/process/internalverbs who serves a node",
	"internal/wire/rendezvouspb": "protoc-gen-go registers the messages",
}

// TestImportingChangesNothing checks that importing a package has no effect on a program: an init
// function only begins a helper process, which internal/host/helper recognises by a descriptor, and
// nothing else looks at the program's arguments.
func TestImportingChangesNothing(t *testing.T) {
	for _, pkg := range packages(t) {
		for _, f := range parse(t, pkg, 0) {
			if f.Name.Name == "main" {
				continue
			}
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				begins := ok && fn.Recv == nil && fn.Name.Name == "init"
				if begins && inits[pkg] == "" && !guarded(fn) {
					t.Errorf("%s has an init that does not begin with helper.Is: importing it must change nothing", pkg)
				}
				if !begins && pkg != "internal/host/helper" && pkg != "internal/testkit/suite" && mentions(d, "os", "Args") {
					t.Errorf("%s looks at os.Args: the arguments are the program's own", pkg)
				}
			}
		}
	}
}

// guarded reports whether a function does nothing outside a helper process.
func guarded(fn *ast.FuncDecl) bool {
	first, ok := fn.Body.List[0].(*ast.IfStmt)
	if !ok || !mentions(first.Cond, "helper", "Is") {
		return false
	}
	if _, not := first.Cond.(*ast.UnaryExpr); not {
		_, returns := first.Body.List[len(first.Body.List)-1].(*ast.ReturnStmt)
		return returns
	}
	return len(fn.Body.List) == 1
}

func mentions(n ast.Node, pkg, name string) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == name {
			x, ok := s.X.(*ast.Ident)
			found = found || ok && x.Name == pkg
		}
		return !found
	})
	return found
}

// TestContributingShowsTheRooms checks that the layout in CONTRIBUTING.md has each top-level
// package and each folder below internal.
func TestContributingShowsTheRooms(t *testing.T) {
	text, err := os.ReadFile(path.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range packages(t) {
		parts := strings.Split(pkg, "/")
		room := strings.Join(parts[:min(len(parts), 2)], "/")
		if parts[0] != "internal" && parts[0] != "cmd" {
			room = parts[0]
		}
		if !strings.Contains(string(text), "\n| `"+room+"`") {
			t.Errorf("the layout does not show %s", room)
		}
	}
}

// TestContributingFindsDecisions checks that each file that CONTRIBUTING.md names for a decision
// declares the functions and variables that follow its name.
func TestContributingFindsDecisions(t *testing.T) {
	text, err := os.ReadFile(path.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Where things are decided\n")
	table, _, _ = strings.Cut(table, "\n## ")
	file, checked := "", 0
	for i, name := range strings.Split(table, "`") {
		if i%2 == 0 { // text between the names
			continue
		}
		if strings.HasSuffix(name, ".go") {
			file = name
			if found, err := filepath.Glob(path.Join(root, file)); err != nil || len(found) == 0 {
				t.Errorf("CONTRIBUTING.md names %s, which does not exist", file)
			}
			continue
		}
		source, err := os.ReadFile(path.Join(root, file))
		if err != nil {
			t.Errorf("CONTRIBUTING.md names a file that does not exist: %v", err)
			continue
		}
		declaration := regexp.MustCompile(`(?m)^(func (\([^)]*\) )?` + name + `\(|(const|var) ` + name + ` )`)
		if !declaration.Match(source) {
			t.Errorf("CONTRIBUTING.md says that %s decides something in %s, which does not declare it", name, file)
		}
		checked++
	}
	if checked < 16 {
		t.Errorf("found %d decisions in CONTRIBUTING.md, want at least 16", checked)
	}
}
