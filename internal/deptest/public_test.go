package deptest

import (
	"bytes"
	"fmt"
	"go/ast"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"testing"
)

// screen is the number of lines of go doc that a person can take in at once.
const screen = 56

// public are the packages for outsiders. A debt may shrink, but not grow.
var public = map[string]debt{
	"launcher": {}, "launcher/group": {}, "launcher/report": {}, "launcher/up": {}, "placement": {}, "rankenv": {}, "nccl": {},
	"agent":      {internal: 8, why: "launcher says what a rank is bound to, and where its output goes"},
	"rendezvous": {internal: 11, why: "launcher wires it to its candidate, its log and the job"},
}

// debt is the number of lines that go doc prints for a package if they exceed a screen, and how
// often the package's exported declarations mention internal packages.
type debt struct {
	lines, internal int
	why             string
}

// TestPublicPackagesFitOnAScreen keeps public packages small: declarations that an outsider would
// not use belong in internal/.
func TestPublicPackagesFitOnAScreen(t *testing.T) {
	for pkg, d := range public {
		cmd := exec.Command("go", "doc", "./"+pkg)
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(out, []byte{'\n'}); n > max(screen, d.lines) {
			t.Errorf("go doc ./%s has %d lines, and may have %d", pkg, n, max(screen, d.lines))
		} else if n < d.lines {
			t.Errorf("go doc ./%s has %d lines: lower its debt", pkg, n)
		}
	}
}

// TestPublicPackagesShowTheirTypes checks that go doc of a public package shows the fields of each
// of its types: no exported declaration mentions an internal package or a protobuf type, or is an
// alias.
func TestPublicPackagesShowTheirTypes(t *testing.T) {
	for pkg, d := range public {
		var found []string
		for _, f := range parse(t, pkg, 0) {
			f := shown{internal: internalImports(f), file: f}
			f.declarations()
			found = append(found, f.found...)
		}
		switch {
		case len(found) > d.internal:
			t.Errorf("package %s mentions internal packages %d times, and may do so %d times:\n%s", pkg, len(found), d.internal, strings.Join(found, "\n"))
		case len(found) < d.internal:
			t.Errorf("package %s has %d mentions of internal packages: lower its debt", pkg, len(found))
		}
	}
}

// TestTopLevelPackagesArePublic checks that no top-level package escapes these rules.
func TestTopLevelPackagesArePublic(t *testing.T) {
	for _, pkg := range packages(t) {
		if _, known := public[pkg]; !known && !strings.Contains(pkg, "/") {
			t.Errorf("package %s is for outsiders: add it to public", pkg)
		}
	}
}

// internalImports returns the names by which a file knows packages that are not for outsiders.
func internalImports(f *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, spec := range f.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if strings.Contains(imported, "/internal/") || strings.HasSuffix(imported, "pb") || strings.Contains(imported, "protobuf") {
			names[name] = true
		}
	}
	return names
}

// shown has the mentions of internal packages in the exported declarations of a file.
type shown struct {
	file     *ast.File
	internal map[string]bool
	found    []string
}

func (f *shown) declarations() {
	for _, d := range f.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(base(d.Recv.List[0].Type))) {
				f.look("func "+d.Name.Name, d.Type)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				f.spec(spec)
			}
		}
	}
}

func (f *shown) spec(spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return
		}
		if s.Assign.IsValid() {
			f.found = append(f.found, "type "+s.Name.Name+" is an alias")
		}
		if fields, ok := s.Type.(*ast.StructType); ok {
			for _, field := range fields.Fields.List {
				if len(field.Names) == 0 && ast.IsExported(base(field.Type)) || len(field.Names) > 0 && field.Names[0].IsExported() {
					f.look("type "+s.Name.Name, field.Type)
				}
			}
			return
		}
		f.look("type "+s.Name.Name, s.Type)
	case *ast.ValueSpec:
		if !s.Names[0].IsExported() {
			return
		}
		f.look("value "+s.Names[0].Name, s.Type)
		for _, v := range s.Values {
			if _, plain := v.(*ast.SelectorExpr); plain {
				f.look("value "+s.Names[0].Name, v)
			}
		}
	}
}

func (f *shown) look(where string, n ast.Node) {
	if n == nil {
		return
	}
	ast.Inspect(n, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && f.internal[x.Name] {
				f.found = append(f.found, fmt.Sprintf("%s mentions %s.%s", where, x.Name, s.Sel.Name))
			}
		}
		return true
	})
}

// base is the name of a type, without pointer, package and parameters.
func base(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return base(t.X)
	case *ast.SelectorExpr:
		return t.Sel.Name
	case *ast.IndexExpr:
		return base(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}
