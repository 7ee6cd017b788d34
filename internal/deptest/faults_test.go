package deptest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFaultsNameTests checks that each test in docs/faults.md exists, that each row names a test or
// says why there is none, and that no row is missing.
func TestFaultsNameTests(t *testing.T) {
	text, err := os.ReadFile(path.Join(root, "docs/faults.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| [FX]\d+ \|.*$`).FindAllString(string(text), -1)
	if len(rows) != 117+33 { // no row has the numbers F12, F23, X12 and X14
		t.Errorf("%d rows", len(rows))
	}
	known := map[string]map[string]bool{}
	for _, row := range rows {
		cells := strings.Split(row, "|") // the first and the last are empty
		if len(cells) != 8 {
			t.Errorf("%d cells: %s", len(cells)-2, row)
			continue
		}
		names := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[5], -1)
		if len(names) == 0 && !strings.HasPrefix(cells[6], " not covered: ") && !strings.HasPrefix(cells[6], " does not apply: ") {
			t.Errorf("no test, and no reason: %s", row)
		}
		for _, name := range names {
			pkg, f, isFunc := strings.Cut(name[1], " ")
			if !isFunc {
				if _, err := os.Stat(path.Join(root, name[1])); err != nil {
					t.Errorf("%s: %v", cells[1], err)
				}
				continue
			}
			if known[pkg] == nil {
				known[pkg] = testsOf(t, pkg)
			}
			if !known[pkg][f] {
				t.Errorf("%s: there is no %s in %s", cells[1], f, pkg)
			}
		}
	}
}

// testsOf are the functions in the tests of a package.
func testsOf(t *testing.T, pkg string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(path.Join(root, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				names[f.Name.Name] = true
			}
		}
	}
	return names
}
