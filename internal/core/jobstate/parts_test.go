package jobstate

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOnlyPartsChangeThemselves checks that methods of State change no field of a part, a unit, a
// member or a node: these have methods for that.
func TestOnlyPartsChangeThemselves(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil || len(fn.Recv.List[0].Names) == 0 || fn.Recv.List[0].Names[0].Name != "s" {
				continue
			}
			for _, e := range changed(fn.Body) {
				root, depth := variable(e)
				if root == "s" && depth > 1 || depth > 0 && slices.Contains([]string{"u", "m", "n", "sl"}, root) {
					t.Errorf("%v: %s changes a field of %s", set.Position(e.Pos()), fn.Name.Name, root)
				}
			}
		}
	}
}

// changed returns the expressions to which a function assigns, except variables that the function
// declares.
func changed(body ast.Node) (all []ast.Expr) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				all = append(all, n.Lhs...)
			}
		case *ast.IncDecStmt:
			all = append(all, n.X)
		}
		return true
	})
	return all
}

// variable returns the variable with which an expression begins, and how many fields follow it.
func variable(e ast.Expr) (root string, depth int) {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name, 0
	case *ast.SelectorExpr:
		root, depth = variable(e.X)
		return root, depth + 1
	case *ast.IndexExpr:
		return variable(e.X)
	case *ast.StarExpr:
		return variable(e.X)
	}
	return "", 0
}
