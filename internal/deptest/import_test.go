package deptest

import (
	"go/ast"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// inits are functions named init that are not a helper's life, with the reason.
var inits = map[string]string{
	"launcher":                   "it tells internal/process/internalverbs who serves a node",
	"internal/wire/rendezvouspb": "protoc-gen-go registers the messages",
}

// TestImportingChangesNothing keeps packages from acting on how a program was started: an init is the life of a helper process, which
// internal/host/helper knows by a descriptor, and nothing else looks at the program's arguments.
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
					t.Errorf("%s has an init that does not begin with helper.Is: what imports it must not change", pkg)
				}
				if !begins && pkg != "internal/host/helper" && pkg != "internal/testkit/suite" && mentions(d, "os", "Args") {
					t.Errorf("%s looks at os.Args: the arguments are the program's own", pkg)
				}
			}
		}
	}
}

// guarded says that a function does nothing unless helper.Is says so.
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

// TestContributingShowsTheRooms holds that the layout in CONTRIBUTING.md has each room, from the top down.
func TestContributingShowsTheRooms(t *testing.T) {
	var shown, all []string
	for _, row := range lines(t, "CONTRIBUTING.md") {
		if name, ok := strings.CutPrefix(row, "| `"); ok {
			name, _, _ = strings.Cut(name, "`")
			shown = append(shown, name)
		}
	}
	for _, rooms := range floors {
		for _, room := range rooms {
			if room != "internal/wire/rpcframe" && room != "internal/host/dylib" && room != "internal/host/lazyregexp" { // named in their rows
				all = append(all, room)
			}
		}
	}
	for _, room := range all {
		if !slices.Contains(shown, room) {
			t.Errorf("the layout does not show %s", room)
		}
	}
}

// lines are those of a file of this module.
func lines(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(path.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}
